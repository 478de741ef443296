# The server and the sandbox service in one image, without vLLM:
#
#     docker build -t tirjudge .
#
# and with it, so that `tirjudge serve --model NAME --workers N` serves a judge on a machine with GPUs:
#
#     docker build -t tirjudge-vllm --target vllm .
#
# Base images are named by the tag of an exact release, and packages are installed from lock files with hashes (`make lock`).
# A tag can be moved; a digest cannot. `docker buildx imagetools inspect IMAGE` prints the digest of a base, and
# --build-arg PYTHON_IMAGE=python:3.13.9-slim-trixie@sha256:... builds on it.
ARG PYTHON_IMAGE=python:3.13.9-slim-trixie
# A release and not `latest`: what the server asks of vLLM changes between them.
ARG VLLM_IMAGE=vllm/vllm-openai:v0.33.0

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /source
COPY . .
RUN python3 -m pip install --no-cache-dir --only-binary :all: --require-hashes --requirement server/image/build.lock \
    && python3 -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

# pip installs into the environment from outside, so that none is left in it.
FROM ${PYTHON_IMAGE} AS environment
# What programs may import besides what server/image/programs.in names; installed without a lock.
ARG PROGRAM_PACKAGES=""
COPY --from=wheel /wheels /wheels
COPY server/image/requirements.lock /requirements.lock
RUN python3 -m venv --without-pip /opt/tirjudge \
    && python3 -m pip --python /opt/tirjudge/bin/python install --no-cache-dir --only-binary :all: --require-hashes \
        --requirement /requirements.lock
# hadolint ignore=SC2086
RUN python3 -m pip --python /opt/tirjudge/bin/python install --no-cache-dir --only-binary :all: --no-deps /wheels/*.whl \
    && if [ -n "${PROGRAM_PACKAGES}" ]; then python3 -m pip --python /opt/tirjudge/bin/python install --no-cache-dir \
        --only-binary :all: ${PROGRAM_PACKAGES}; fi \
    && python3 -m pip --python /opt/tirjudge/bin/python check

# The same on vLLM's Python. An environment of its own: what vLLM needs stays as it was released.
FROM ${VLLM_IMAGE} AS vllm-environment
ARG PROGRAM_PACKAGES=""
COPY --from=wheel /wheels /wheels
COPY server/image/requirements.lock /requirements.lock
RUN python3 -m venv --without-pip /opt/tirjudge \
    && python3 -m pip --python /opt/tirjudge/bin/python install --no-cache-dir --only-binary :all: --require-hashes \
        --requirement /requirements.lock
# hadolint ignore=SC2086
RUN python3 -m pip --python /opt/tirjudge/bin/python install --no-cache-dir --only-binary :all: --no-deps /wheels/*.whl \
    && if [ -n "${PROGRAM_PACKAGES}" ]; then python3 -m pip --python /opt/tirjudge/bin/python install --no-cache-dir \
        --only-binary :all: ${PROGRAM_PACKAGES}; fi \
    && python3 -m pip --python /opt/tirjudge/bin/python check

FROM ${VLLM_IMAGE} AS vllm
COPY --from=vllm-environment /opt/tirjudge /opt/tirjudge
# The user that vLLM's image brings for this; its name must be known, since torch asks for it.
RUN install -d -o 2000 -g 0 -m 0770 /var/lib/tirjudge
ENV PATH=/opt/tirjudge/bin:$PATH \
    XDG_STATE_HOME=/var/lib \
    TIRJUDGE_HOST=0.0.0.0 \
    VLLM_NO_USAGE_STATS=1
USER 2000:0
WORKDIR /var/lib/tirjudge
EXPOSE 8400
# A large model takes minutes to load.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15m --retries=3 CMD ["python3", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('TIRJUDGE_PORT', 8400)), timeout=4); c.request('GET', '/ready'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["tirjudge"]
CMD ["serve"]

FROM ${PYTHON_IMAGE} AS server
COPY --from=environment /opt/tirjudge /opt/tirjudge
RUN groupadd --gid 10001 tirjudge \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/tirjudge --shell /usr/sbin/nologin tirjudge \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/tirjudge
ENV PATH=/opt/tirjudge/bin:$PATH \
    XDG_STATE_HOME=/var/lib \
    TIRJUDGE_HOST=0.0.0.0
USER 10001:10001
WORKDIR /var/lib/tirjudge
EXPOSE 8400
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python3", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('TIRJUDGE_PORT', 8400)), timeout=4); c.request('GET', '/ready'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["tirjudge"]
CMD ["serve"]
