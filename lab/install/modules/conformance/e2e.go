// Package conformance pins the modules of Kubernetes' own end-to-end tests.
package conformance

import (
	_ "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/framework"
)
