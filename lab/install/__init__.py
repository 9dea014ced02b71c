"""Programs, packages, images and Python environments: installed or built once, and cached."""
