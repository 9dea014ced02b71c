"""`bench lab` and `bench lab_services`: Pods and Services on the lab."""
