"""What runs on a node: the agent. Imported as `ludwig.worker`; never imports pandas."""
