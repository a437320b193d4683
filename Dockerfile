# MULE on the CPU, as a user without rights. Built from a checkout:
#
#     docker build --tag mule --build-arg EXTRAS=onnx,openvino .
#     docker run --rm --volume "$PWD:/videos" mule watch video.mp4
#
# Give the address of an index with CPU builds of torch as PIP_EXTRA_INDEX_URL; otherwise pip takes the build with CUDA.
FROM python:3.11-slim AS build
ARG PIP_EXTRA_INDEX_URL=
ARG EXTRAS=onnx,openvino
WORKDIR /source
COPY . .
RUN python -m venv /opt/mule \
    && /opt/mule/bin/pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.11-slim
COPY --from=build /opt/mule /opt/mule
RUN useradd --create-home --uid 1000 mule && mkdir /videos && chown mule /videos
ENV PATH=/opt/mule/bin:$PATH
USER mule
WORKDIR /videos
ENTRYPOINT ["mule"]
CMD ["--help"]
