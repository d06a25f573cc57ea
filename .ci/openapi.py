"""Print the OpenAPI document of `redismem serve`, for `make client`. No server is needed."""

import json
import sys

from redismem.web.app import openapi


def main() -> None:
    json.dump(openapi(), sys.stdout)


if __name__ == "__main__":
    main()
