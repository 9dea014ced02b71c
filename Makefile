# make demo   the whole stack on this machine, and Pods on it     (root, Debian 12)
# make test   tests of all kinds, from nothing; long ones sampled (root, Debian 12)
# make check  what a change touches, in a minute                  (any user, no lab)
# make test-all   all tests and all faults, on two Pythons        (root, Debian 12)
# make conformance   Kubernetes' own tests of the network    (root, Debian 12)
# make bench  all measurements behind claims about speed          (root, Debian 12)
PYTHON ?= python3
POOL ?= neutron

.PHONY: help demo demo-down test test-all check conformance bench bench-ancestor soak lab-up lab-down

help:
	@sed -n 's/^# //p' Makefile

# make demo IN_PODS=1   the same with the controller and the daemons as Pods, from the image
demo: # brings up the lab and the product, and shows Pods beside their Neutron ports
	$(PYTHON) -m lab.demo $(if $(IN_PODS),--in-pods)

demo-down:
	$(PYTHON) -m lab.demo down

test:
	$(PYTHON) -m lab.suite

test-all:
	$(PYTHON) -m lab.suite --complete

# make check BASE=main   what differs from the commit main
check:
	$(PYTHON) -m lab.suite.check $(if $(BASE),--base $(BASE))

# make conformance PROVIDER=amphora CONFORMANCE="--times 3 --more"
conformance: lab-up
	$(PYTHON) -m lab.kuryr up --services $(if $(PROVIDER),--provider $(PROVIDER)) --pool $(POOL)
	$(PYTHON) -m lab.conformance $(CONFORMANCE)

# make bench BENCH="pods restart"   only these; see bench/README.md
bench:
	$(PYTHON) -m lab.bench $(BENCH)

# make bench-ancestor ANCESTOR="--parts services"   beside kuryr-kubernetes 10.0.0, or a part of it
bench-ancestor:
	$(PYTHON) -m lab.bench ancestor $(ANCESTOR)

# make soak POOL=neutron SOAK="--minutes 5 --seed 7"   half an hour of Pods and restarts
soak: lab-up
	$(PYTHON) -m lab.kuryr up --pool $(POOL)
	$(PYTHON) -m lab.soak $(SOAK)

# make lab-up, lab-down   only Kubernetes and OpenStack; see lab/README.md
lab-up:
	$(PYTHON) -m lab up

lab-down:
	$(PYTHON) -m lab down
