# make demo   the whole stack on this machine, and Pods on it     (root, Debian 12)
# make test   everything that is tested, from nothing             (root, Debian 12)
# make bench  everything that is claimed about speed, measured    (root, Debian 12)
PYTHON ?= python3
POOL ?= neutron

.PHONY: help demo demo-down test bench bench-ancestor soak lab-up lab-down

help:
	@sed -n 's/^# //p' Makefile

demo: # brings up the lab and the product, and shows Pods beside their Neutron ports
	$(PYTHON) -m lab.demo

demo-down:
	$(PYTHON) -m lab.demo down

test:
	$(PYTHON) -m lab.suite

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
