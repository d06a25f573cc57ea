"""Print the OpenAPI document of `redismem serve`, for `make client`. No server is needed."""

import json
import sys

from redismem.web.access import Access
from redismem.web.app import create_app
from redismem.web.service import Service


def main() -> None:
    json.dump(create_app(Service({}, Access([]))).openapi(), sys.stdout)


if __name__ == "__main__":
    main()
