"""The controller's credential at Keystone: an application credential with the least roles."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from lab.openstack.rest import Api, token

# `member` for what the project owns, `service` because Neutron lets only that role (or an
# administrator) write and read binding:* of ports.
ROLES = ("member", "service")
Json = dict[str, Any]


def clouds(lab_clouds: Path, roles: tuple[str, ...] = ROLES) -> Json:
    """Create a credential, and build a clouds.yaml that knows one account, kuryr, by it.

    It carries no password, and no role that the user may have besides.
    """
    cloud: Json = json.loads(lab_clouds.read_text())["clouds"]["kuryr"]
    auth = cloud["auth"]
    key = token(auth["auth_url"], auth["username"], auth["password"], auth["project_name"])
    keystone = Api(auth["auth_url"], key)
    headers = {"X-Subject-Token": key}
    user = keystone.call("GET", "/auth/tokens", headers=headers)[0]["token"]["user"]["id"]
    wanted = {"name": f"kuryr-{uuid.uuid4().hex}", "roles": [{"name": role} for role in roles]}
    made = keystone.post(
        f"/users/{user}/application_credentials", {"application_credential": wanted}
    )["application_credential"]
    secret = {
        "auth_url": auth["auth_url"],
        "application_credential_id": made["id"],
        "application_credential_secret": made["secret"],
    }
    own = cloud | {"auth_type": "v3applicationcredential", "auth": secret}
    return {"clouds": {"kuryr": own}}
