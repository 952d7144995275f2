FROM python:3.13.9-slim-bookworm AS builder

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/venv
COPY requirements.lock ./
RUN /opt/venv/bin/pip install --require-hashes -r requirements.lock
COPY . .
# The lock pins the build backend too; it has done its work once the wheel is installed.
RUN /opt/venv/bin/pip install --no-deps --no-build-isolation . \
    && /opt/venv/bin/pip uninstall --yes hatchling editables


FROM python:3.13.9-slim-bookworm

RUN groupadd --gid 10001 braid \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin braid \
    && install --directory --owner=10001 --group=10001 --mode=0700 /data
COPY --from=builder /opt/venv /opt/venv

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    BRAID_HOST=0.0.0.0 \
    BRAID_PORT=8080 \
    BRAID_DATA_DIR=/data
WORKDIR /data
VOLUME /data
EXPOSE 8080
USER 10001:10001
# Braid stops its engines on SIGINT, as on Ctrl-C.
STOPSIGNAL SIGINT
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f\"http://127.0.0.1:{os.environ['BRAID_PORT']}/healthz\", timeout=2)"]
ENTRYPOINT ["braid"]
CMD ["serve"]
