# The image of kafkastore: docs/containers.md. It takes the wheels of `make wheels`, in dist/.
#
#     docker build --tag kafkastore .
#     docker buildx build --platform linux/amd64,linux/arm64 .
#
# packaging/image.py assembles the root file system; `make image` runs it without Docker. It runs
# nothing of the image, so both images are made on the machine's own processor.
FROM --platform=$BUILDPLATFORM debian:12-slim AS root
# Debian's archive keeps only the newest packages of a release: exact versions would be gone.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-pip \
    && rm -rf /var/lib/apt/lists/*
COPY dist/ /wheels/
COPY packaging/image.py /packaging/
ARG TARGETARCH
ARG EXTRAS=""
RUN python3 /packaging/image.py /root-of-image /wheels \
    --architecture "$TARGETARCH" --extras "$EXTRAS"

FROM scratch
LABEL org.opencontainers.image.title="kafkastore"
LABEL org.opencontainers.image.description="Read, check, repair and migrate Kafka log directories without a broker"
LABEL org.opencontainers.image.licenses="Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT"
COPY --from=root /root-of-image/ /
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/kafkastore"]
CMD ["--help"]
