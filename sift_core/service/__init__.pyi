from sift_core.service.app import create_app as create_app
from sift_core.service.settings import ServiceSettings as ServiceSettings
