# The server and the sandbox service in one image, without vLLM:
#
#     docker build -t tirjudge .
#
# With vLLM, for `tirjudge serve --model NAME --workers N` on a machine with GPUs:
#
#     docker build -t tirjudge-vllm --target vllm .
#
# Base images have the tag of an exact release. Packages are installed from lock files with hashes (`make lock`).
# A tag can be moved; a digest cannot. `docker buildx imagetools inspect IMAGE` prints the digest of a base image.
# Pin it with --build-arg PYTHON_IMAGE=python:3.13.9-slim-trixie@sha256:...
ARG PYTHON_IMAGE=python:3.13.9-slim-trixie
# A fixed release, because vLLM's API differs between releases.
ARG VLLM_IMAGE=vllm/vllm-openai:v0.32.0

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /source
COPY . .
RUN python3 -m pip install --no-cache-dir --only-binary :all: --require-hashes --requirement server/image/build.lock \
    && python3 -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

# pip runs outside the environment, so the environment does not contain pip.
FROM ${PYTHON_IMAGE} AS environment
# Packages that programs may import besides those of server/image/programs.in. Installed without a lock file.
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

# The same with vLLM's Python. A separate environment leaves vLLM's packages unchanged.
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
# The unprivileged user of vLLM's image. torch requires that the user has a name.
RUN install -d -o 2000 -g 0 -m 0770 /var/lib/tirjudge
ENV PATH=/opt/tirjudge/bin:$PATH \
    XDG_STATE_HOME=/var/lib \
    TIRJUDGE_HOST=0.0.0.0 \
    VLLM_NO_USAGE_STATS=1
USER 2000:0
WORKDIR /var/lib/tirjudge
EXPOSE 8400
# Loading a large model takes minutes.
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
