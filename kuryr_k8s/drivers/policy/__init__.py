"""Projects, subnets and security groups of Pods and Services."""
