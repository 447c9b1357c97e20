"""The real headers of CUDA, NCCL and cuBLAS, and the real libnccl, for tests, where they are found.

Nothing that we ship needs them. `:nvidia` holds the headers that were found and nvidia_found.h, which
says in macros what was found and where else it was looked for.
"""

# What cuda_runtime.h and cuda_fp16.h include; a folder that lacks one of them is of no use.
_CUDA = ["cuda.h", "cudaTypedefs.h", "cuda_runtime.h", "cuda_fp16.h", "crt/host_config.h"]

def _has(ctx, folder, names):
    for name in names:
        if not ctx.path(folder + "/" + name).exists:
            return False
    return True

def _first(ctx, folders, names):
    for folder in folders:
        if _has(ctx, folder, names):
            return folder
    return None

# The folder that tools/setup --with-nccl fills, down to the packages' own; None where it is not.
def _wheels(ctx):
    env = ctx.os.environ
    cache = env.get("XDG_CACHE_HOME") or (env.get("HOME") or "/root") + "/.cache"
    lib = ctx.path(cache + "/ddprun-nccl/lib")
    if not lib.exists:
        return None
    for version in lib.readdir():
        packages = version.get_child("site-packages").get_child("nvidia")
        if packages.exists:
            return str(packages)
    return None

def _impl(ctx):
    wheels = _wheels(ctx)
    folders = []
    if ctx.os.environ.get("CUDA_HOME"):
        folders.append(ctx.os.environ["CUDA_HOME"] + "/include")
    folders += ["/usr/local/cuda/include", "/usr/include"]
    looked_for = ", ".join(folders)
    if wheels:
        folders += [wheels + "/cu13/include", wheels + "/nccl/include"]

    cuda = None
    for folder in folders:
        if cuda == None and _has(ctx, folder, _CUDA) and (
            _has(ctx, folder, ["nv/target"]) or _has(ctx, folder, ["cccl/nv/target"])
        ):
            cuda = folder
    nccl = _first(ctx, folders, ["nccl.h"]) if cuda else None
    cublas = _first(ctx, folders, ["cublas_v2.h"]) if cuda else None

    # Headers in /usr/include are seen anyway, and named again they would hide the C++ library's.
    includes = []
    for name, folder in [("cuda", cuda), ("nccl", nccl), ("cublas", cublas)]:
        if folder and folder != "/usr/include":
            ctx.symlink(folder, name)
            includes.append(name)
    if cuda and _has(ctx, cuda, ["cccl/nv/target"]) and "cuda" in includes:
        includes.append("cuda/cccl")
    library = wheels + "/nccl/lib/libnccl.so.2" if wheels else ""
    ctx.file("nvidia_found.h", """#define NVIDIA_HAS_CUDA {cuda}
#define NVIDIA_HAS_NCCL {nccl}
#define NVIDIA_HAS_CUBLAS {cublas}
#define NVIDIA_NCCL_LIBRARY "{library}"
#define NVIDIA_LOOKED_FOR "{looked_for}, and in the environment of tools/setup --with-nccl"
""".format(
        cuda = 1 if cuda else 0,
        nccl = 1 if nccl else 0,
        cublas = 1 if cublas else 0,
        library = library if library and ctx.path(library).exists else "",
        looked_for = looked_for,
    ))
    ctx.file("BUILD", """
cc_library(
    name = "nvidia",
    testonly = 1,
    hdrs = ["nvidia_found.h"] + glob(
        [folder + file for folder in ["cuda/", "nccl/", "cublas/"] for file in ["*.h", "*.hpp"]] +
        ["cuda/crt/**", "cuda/nv/**", "cuda/cccl/nv/**", "nccl/nccl_device/**"],
        allow_empty = True,
    ),
    includes = {includes} + ["."],
    visibility = ["//visibility:public"],
)
""".format(includes = repr(includes)))

nvidia_found = repository_rule(
    implementation = _impl,
    # DDPRUN_NVIDIA only says that something has changed: a folder that appears is noticed by nobody.
    environ = ["CUDA_HOME", "DDPRUN_NVIDIA", "HOME", "XDG_CACHE_HOME"],
    local = True,
)
