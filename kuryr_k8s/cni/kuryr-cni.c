/* kuryr-cni: passes a CNI request to the node's daemon, and prints its answer.
 *
 * Runtimes start this program for every request, many at a time, so its start must be fast: it is
 * linked statically and uses no heap. It runs on the node itself, even if the daemon runs in a
 * container.
 *
 * A request consists of the environment as in /proc/PID/environ (only the variables of CNI and
 * tracing), an empty entry, and standard input; then the sender shuts its side down. The answer is
 * a line with exit code and length, and as many bytes for standard output. The daemon decides
 * everything, except if it cannot be reached or does not answer in time: then ADD, CHECK and GC
 * fail with "try again later", STATUS fails with "not available", and a DEL is stored in a
 * directory, for the daemon to do later. A DEL is also stored if the daemon's exit code is PUT_OFF,
 * which means that it cannot do this DEL now.
 */
#define _POSIX_C_SOURCE 200809L /* openat and its like, beside C11 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET "/run/kuryr/cni.sock"
#define SPOOL "/var/lib/kuryr/spool"
#define VERSIONS "\"0.3.1\", \"0.4.0\", \"1.0.0\", \"1.1.0\"" /* as in protocol.py */
#define GRACE 5    /* further seconds to store a DEL and to print an error */
#define PUT_OFF 75 /* EX_TEMPFAIL of sysexits.h, as in protocol.py */
#define LARGEST (4 * 1024 * 1024) /* bytes of a request, as in server.py, and of an answer */

/* SPEC, "Error", well-known codes */
enum { BAD_ENVIRONMENT = 4, IO_FAILURE, DECODE_FAILURE, TRY_LATER = 11, NOT_AVAILABLE = 50 };

/* Seconds until a command gives the daemon up. The kubelet waits 240 for an ADD and 120 for the
   others; it calls the runtime down when STATUS takes longer than 30. */
static const struct {
    const char *command;
    unsigned seconds;
} deadlines[] = {{"ADD", 230}, {"STATUS", 5}, {"", 60}}; /* the last is for all others */

typedef struct {
    size_t length;
    char bytes[LARGEST + 2]; /* one byte more than allowed, and a zero after the end */
} Buffer;
typedef char Text[PATH_MAX + 1]; /* longer than any path: a text that is cut off stays too long */

extern char **environ;
static Buffer request, answer; /* unused pages cost nothing */
static const char *config;     /* standard input, at the end of the request */
static volatile sig_atomic_t rings;

/* Note the deadline's alarm, which repeats: one may come just before a call that blocks. */
static void ring(int signal_number)
{
    (void)signal_number;
    if (++rings > GRACE)
        _exit(1);
    alarm(1);
}

static unsigned deadline(const char *command)
{
    size_t i = 0;
    while (*deadlines[i].command && strcmp(deadlines[i].command, command))
        i++;
    return deadlines[i].seconds;
}

/* Return whether to continue after a call that returned n: it did something, or was interrupted,
   and the alarm has not come. If it has, set errno to ETIME. */
static bool again(ssize_t n, int rings_before)
{
    if (n < 0 && errno != EINTR)
        return false;
    errno = ETIME;
    return rings == rings_before;
}

/* Read up to the end and append it. On failure return false with errno, EFBIG if it is too much. */
static bool read_all(int file, Buffer *buffer)
{
    for (int before = rings; buffer->length <= LARGEST;) {
        ssize_t n = read(file, buffer->bytes + buffer->length, LARGEST + 1 - buffer->length);
        if (n == 0)
            return true;
        if (!again(n, before))
            return false;
        buffer->length += n > 0 ? (size_t)n : 0;
    }
    errno = EFBIG;
    return false;
}

/* Write all bytes, however few the file takes at a time. On failure return false with errno. */
static bool write_all(int file, const char *bytes, size_t length)
{
    for (int before = rings; length;) {
        ssize_t n = write(file, bytes, length);
        if (n == (ssize_t)length)
            return true;
        if (!again(n, before))
            return false;
        bytes += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool append(Buffer *buffer, const char *bytes, size_t length)
{
    if (length > LARGEST - buffer->length) {
        errno = EFBIG;
        return false;
    }
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    return true;
}

/* Return whether this is the first entry of its name: like getenv we ignore others. */
static bool is_first(char **entry)
{
    size_t name = strcspn(*entry, "=") + 1;
    char **first = environ;
    while (strncmp(*first, *entry, name))
        first++;
    return first == entry;
}

/* Append the variables that the daemon needs, and the empty entry. */
static bool append_environment(void)
{
    static const char *const needed[] = {"CNI_", "TRACEPARENT=", "TRACESTATE=", "BAGGAGE="};
    for (char **entry = environ; *entry; entry++)
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
            if (!strncmp(*entry, needed[i], strlen(needed[i])) && strchr(*entry, '=') &&
                is_first(entry) && !append(&request, *entry, strlen(*entry) + 1))
                return false;
    return append(&request, "", 1);
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

/* Return the beginning of the value of a key of the configuration, "" if there is none. Only the
   outermost keys count: a Pod may have written what is nested deeper. */
static const char *value_of(const char *key, size_t length)
{
    static const char blanks[] = " \t\n\v\f\r";
    const char *end = request.bytes + request.length;
    int depth = 0;
    for (const char *at = config; at < end; at++) {
        const char *begin = at;
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (*at != '"')
            continue;
        for (at++; at < end && *at != '"'; at++)
            at += *at == '\\';
        if (depth != 1 || at >= end || (size_t)(at + 1 - begin) != length ||
            memcmp(begin, key, length))
            continue;
        const char *after = at + 1 + strspn(at + 1, blanks);
        if (*after == ':')
            return after + 1 + strspn(after + 1, blanks);
    }
    return "";
}

/* Copy the string that belongs to a key of the configuration, without parsing the rest of the JSON.
   Copy another text if there is none. */
static const char *setting(const char *name, const char *otherwise, Text text)
{
    char key[32];
    size_t n = 0;
    const char *at = value_of(key, (size_t)sprintf(key, "\"%s\"", name));
    if (*at == '"' && strchr(at + 1, '"'))
        for (at++; *at != '"' && n < sizeof(Text) - 1; at++)
            if (*at != '\\' || at[1] != '/')
                text[n++] = *at;
    text[n] = '\0';
    return n ? text : strcpy(text, otherwise);
}

/* Return the length of the UTF-8 character that begins here, 0 if none does (RFC 3629). */
static size_t character(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t length = *s < 0x80 ? 1 : *s < 0xc2 || *s > 0xf4 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) || /* overlong, surrogate */
        (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f))   /* overlong, too large */
        return 0;
    return length;
}

/* Append a text as the content of a JSON string (RFC 8259). */
static void append_json(Buffer *buffer, const char *text)
{
    for (size_t n; *text; text += n ? n : 1) {
        char escaped[8];
        n = character(text);
        if (n && (unsigned char)*text >= ' ' && *text != '"' && *text != '\\')
            append(buffer, text, n);
        else
            append(buffer, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x",
                                                     n ? (unsigned char)*text : 0xfffdU));
    }
}

/* Print a failure in the configuration's version (SPEC, "Error"). Return the exit code. */
__attribute__((format(printf, 2, 3))) static int failure(int code, const char *format, ...)
{
    Text version;
    char message[4 * PATH_MAX], number[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    answer.length = 0;
    append(&answer, "{\"cniVersion\": \"", 16);
    append_json(&answer, setting("cniVersion", "1.0.0", version));
    append(&answer, number, (size_t)sprintf(number, "\", \"code\": %d, \"msg\": \"", code));
    append_json(&answer, message);
    append(&answer, "\"}\n", 3);
    write_all(STDOUT_FILENO, answer.bytes, answer.length);
    return 1;
}

/* Connect, send the request, and read the answer. On failure return false with errno. */
static bool exchange(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), before = rings;
    if (channel < 0)
        return false;
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return false;
    }
    strcpy(address.sun_path, path);
    while (connect(channel, (struct sockaddr *)&address, sizeof address))
        if (!again(-1, before))
            return false;
    return write_all(channel, request.bytes, request.length) && !shutdown(channel, SHUT_WR) &&
           read_all(channel, &answer);
}

/* Set code to the answer's exit code. Return where its output begins, NULL if it is incomplete. */
static const char *read_answer(int *code)
{
    size_t length = 0;
    int head = 0;
    bool read = sscanf(answer.bytes, "%3d %9zu%n", code, &length, &head) == 2;
    const char *output = answer.bytes + head + 1, *end = answer.bytes + answer.length;
    if (!read || *code < 0 || *code > 255 || strchr(answer.bytes, '\n') != output - 1 ||
        output + length != end)
        return NULL;
    return output;
}

/* Store the request on disk, a file for each attachment, whole or not at all. On failure return
   false with errno. */
static bool spool(char *directory, const char *container, const char *ifname)
{
    const char *parts[] = {container, ".", ifname};
    char name[NAME_MAX + 4] = "", temporary[NAME_MAX + 32];
    size_t length = 0;
    for (size_t i = 0; i < 3; i++)
        for (const char *at = parts[i]; *at && length <= NAME_MAX; at++) {
            bool plain = isalnum((unsigned char)*at) || strchr("-_.", *at);
            length += (size_t)sprintf(name + length, plain ? "%c" : "%%%02x", (unsigned char)*at);
        }
    for (char *slash = strchr(directory + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(directory, 0777); /* open reports whatever is wrong with it */
        *slash = '/';
    }
    mkdir(directory, 0700);
    sprintf(temporary, ".%s.%d", name, (int)getpid());
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    int parent = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int file = parent < 0 ? -1 : openat(parent, temporary, flags, 0600);
    bool done = file >= 0 && write_all(file, request.bytes, request.length) && !fsync(file) &&
                !renameat(parent, temporary, parent, name) && !fsync(parent);
    int why = errno;
    if (file >= 0 && !done)
        unlinkat(parent, temporary, 0);
    errno = why;
    return done;
}

static const char *reason(void)
{
    return errno == ETIME ? "no answer in time" : strerror(errno);
}

/* Do a request without the daemon. Return the exit code. */
static int without_daemon(const char *command, const char *why)
{
    static const char unreached[] = "kuryr-k8s-daemon cannot be reached on this node";
    Text directory;
    if (strcmp(command, "DEL")) {
        int code = strcmp(command, "STATUS") ? TRY_LATER : NOT_AVAILABLE;
        return failure(code, "%s: %s", unreached, why);
    }
    if (!*variable("CNI_CONTAINERID") || !*variable("CNI_IFNAME"))
        return failure(BAD_ENVIRONMENT, "CNI_CONTAINERID and CNI_IFNAME must be set");
    setting("kuryr_spool", SPOOL, directory);
    if (!spool(directory, variable("CNI_CONTAINERID"), variable("CNI_IFNAME")))
        return failure(IO_FAILURE, "%s: %s; nor can DEL be put off: %s: %s", unreached, why,
                       directory, reason());
    return 0;
}

int main(void)
{
    static const char versions[] =
        "{\"cniVersion\": \"1.1.0\", \"supportedVersions\": [" VERSIONS "]}\n";
    struct sigaction alarmed = {.sa_handler = ring}; /* without SA_RESTART */
    Text path;
    char why[2 * PATH_MAX];
    int code = 1;

    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGALRM, &alarmed, NULL);
    const char *command = variable("CNI_COMMAND");
    alarm(deadline(command));
    bool whole = append_environment();
    config = request.bytes + request.length;
    whole = whole && read_all(STDIN_FILENO, &request);
    if (!strcmp(command, "VERSION"))
        return write_all(STDOUT_FILENO, versions, sizeof versions - 1) ? 0 : 1;
    if (!whole) {
        code = errno == EFBIG ? DECODE_FAILURE : errno == ETIME ? TRY_LATER : IO_FAILURE;
        return failure(code, "the request cannot be read: %s", reason());
    }
    setting("kuryr_socket", SOCKET, path);
    if (!exchange(path)) {
        snprintf(why, sizeof why, "%s: %s", path, reason());
        return without_daemon(command, why);
    }
    const char *output = read_answer(&code);
    if (!output)
        return without_daemon(command, "it ended before its answer was complete");
    if (code == PUT_OFF && !strcmp(command, "DEL"))
        return without_daemon(command, "it cannot do DEL now");
    size_t length = answer.length - (size_t)(output - answer.bytes);
    return write_all(STDOUT_FILENO, output, length) ? code : 1;
}
