"""The client of the Kubernetes API. No other package imports kubernetes_asyncio."""
