# Everything that the tests need but a CUDA toolkit, so that none is skipped for want of it: what tools/setup
# installs, by the same lists (tools/lint compares the options with its help). The repository itself is mounted:
#
#   docker build -t ddprun-tests .
#   docker run --rm -it --privileged --init -v "$PWD":/ddprun -w /ddprun ddprun-tests tools/test --ci
#
# --privileged: tests make namespaces, mounts and cgroups. Beside /ddprun, the build's cache in /root/.cache/ddprun-bazel
# may be a volume.
FROM debian:bookworm

# pip believes the authorities of this package; git lists the files that tools/lint looks at.
RUN apt-get update \
  && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates git \
  && rm -rf /var/lib/apt/lists/*

COPY tools/setup tools/lib.sh tools/wheel_sizes.py /tmp/setup/tools/
RUN /tmp/setup/tools/setup \
    --with-slurm --with-guest --with-kubernetes --with-browser --with-packages --with-images --with-prometheus --with-etcd \
    --with-fuzz --with-debuggers --with-docs --with-nccl --with-torch \
  && rm -rf /var/lib/apt/lists/* /tmp/setup
