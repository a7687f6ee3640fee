"""The application for Ray Serve, without a cluster."""

from sift_core.service import ray_app

assert ray_app.RayArguments
