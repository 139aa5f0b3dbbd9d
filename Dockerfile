# An image with the `cleave` command, of the Debian package that `./dev package` made:
#   docker build --tag cleave .
# For plans for GPUs, on an image that has cuBLAS, cuDNN and NCCL, and glibc 2.36 or later:
#   docker build --tag cleave --build-arg BASE=IMAGE .
ARG BASE=debian:12-slim
FROM $BASE
RUN --mount=type=bind,source=build/packages,target=/packages dpkg --install /packages/cleave_*.deb
CMD ["cleave", "--help"]
