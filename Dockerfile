# The service: `docker build -t redismem .`. docker-compose.yml runs it with Redis and workers.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY redismem redismem
COPY lua lua
# The lock pins more than the service needs; as constraints its hashes would be lost, so they are checked here.
RUN python -m venv /opt/redismem \
 && /opt/redismem/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: \
      --requirement requirements.lock \
 && /opt/redismem/bin/pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m venv /opt/service \
 && /opt/redismem/bin/pip freeze --exclude redismem > /constraints.txt \
 && /opt/service/bin/pip install --no-cache-dir --only-binary :all: --constraint /constraints.txt \
      "$(echo /wheels/*.whl)[server,embeddings]"

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin redismem
COPY --from=build /opt/service /opt/service
ENV PATH=/opt/service/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8080
STOPSIGNAL SIGTERM
# Whether the process answers, and not whether Redis does: whoever restarts what is unhealthy would restart every server
# in an outage, and lose what each has accepted meanwhile (REDISMEM_FALLBACK).
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=6 CMD ["python", "-c", \
  "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/livez', timeout=2)"]
ENTRYPOINT ["redismem"]
CMD ["serve", "--host", "0.0.0.0"]
