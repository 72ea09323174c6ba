# attnd: the libraries that the daemon needs in one stage, the daemon built in another, both and its
# configuration in the image.
#
#   docker build -t attnd .
#   docker run --rm -p 127.0.0.1:8080:8080 -e ATTN_ALLOW_UNAUTHENTICATED=true \
#       -v ./llama:/models/llama:ro attnd
#
# For both architectures (docs/OPERATIONS.md, Architectures):
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t REGISTRY/attnd --push .
#
# BuildKit says what the machine that builds is.  A builder that does not is told so on an arm64
# machine: --build-arg BUILDPLATFORM=linux/arm64.
ARG BUILDPLATFORM

# First, since podman 4.3 gives a stage's --platform to the stages after it.
FROM debian:bookworm-slim AS runtime
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      libgnutls30 libjansson4 libmicrohttpd12 libnettle8 libopenblas0-pthread libseccomp2 \
      libunistring2 zlib1g \
 && rm -rf /var/lib/apt/lists/* \
 && install -d /models \
 && install -d -m 700 -o 65532 -g 65532 /var/lib/attnd /var/cache/attnd

# Compiles on the machine that builds, for the one that runs; only the other architecture's image
# takes a cross compiler.  The programs that print /openapi.json and model families run on the machine
# that builds.
FROM --platform=${BUILDPLATFORM:-linux/amd64} debian:bookworm-slim AS build
ARG TARGETARCH
RUN own=$(dpkg --print-architecture) \
 && arch=${TARGETARCH:-$own} \
 && case "$arch" in amd64) gnu=x86_64-linux-gnu ;; arm64) gnu=aarch64-linux-gnu ;; \
    *) echo "attnd's image is for amd64 and arm64, not $arch" >&2; exit 1 ;; esac \
 && echo "$gnu" >/target \
 && if [ "$arch" != "$own" ]; then \
      cross=gcc-$(echo "$gnu" | tr _ -) && dpkg --add-architecture "$arch"; fi \
 && apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      gcc make pkg-config "libc6-dev:$own" "libjansson-dev:$own" $cross \
      "libc6-dev:$arch" "libgnutls28-dev:$arch" \
      "libjansson-dev:$arch" "libmicrohttpd-dev:$arch" "libseccomp-dev:$arch" \
      "libunistring-dev:$arch" "libxxhash-dev:$arch" "nettle-dev:$arch" "zlib1g-dev:$arch" \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN gnu=$(cat /target) \
 && PKG_CONFIG_LIBDIR=/usr/lib/$gnu/pkgconfig \
    make -j"$(nproc)" CC="$gnu-gcc" AR="$gnu-ar" build/attnd \
 && "$gnu-strip" build/attnd

FROM runtime
COPY --from=build /src/build/attnd /usr/local/bin/attnd
COPY config/attnd.json /etc/attnd/attnd.json
COPY examples/demo/*.json examples/demo/model.safetensors /etc/attnd/demo/

# Variables and not flags, so that the health check reads the same port as the daemon.  Listening on
# all addresses it starts with ATTN_API_KEYS, a file, or with ATTN_ALLOW_UNAUTHENTICATED=true only.
ENV ATTN_CONFIG=/etc/attnd/attnd.json \
    ATTN_HOST=0.0.0.0 \
    ATTN_MODEL_DIR=/models \
    ATTN_DURABILITY=journal \
    ATTN_STATE_DIR=/var/lib/attnd

# Sessions.  A volume without a name lasts as long as its container; give it a name to keep sessions
# when the container is replaced: -v attnd-state:/var/lib/attnd.
VOLUME /var/lib/attnd

# A number, so that Kubernetes' runAsNonRoot can see that it is not root.
USER 65532:65532
WORKDIR /models
EXPOSE 8080
STOPSIGNAL SIGTERM

# Asks /readyz of the daemon in this container; no curl in the image.  An engine asks first when one
# interval is over: a container that starts in less is healthy within two seconds.
HEALTHCHECK --interval=1500ms --timeout=3s --start-period=60s --retries=10 \
    CMD ["attnd", "--health-check"]
ENTRYPOINT ["attnd"]

# Last, so that another revision changes no other layer.  tests/image/services.py compares VERSION
# with include/attn.h.
ARG VERSION=0.1.0
ARG REVISION=
ARG SOURCE=
LABEL org.opencontainers.image.title="attnd" \
      org.opencontainers.image.description="attention layers and key/value caches over HTTP" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
