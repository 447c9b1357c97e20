#!/usr/bin/env python3
"""layers.py GRAPH [PURE-TARGET [LIBRARY-TARGET]]: which of our packages reach which, from the BUILD files.

GRAPH as in graph.py. The optional targets are judged as if they belonged to the pure code and to the library.
A breach is one line: the rule and a way through the graph that breaks it.
"""

import sys

from graph import Graph


def breaches(graph, pure_too=(), library_too=()):
    def under(*folders):
        return graph.matching(*(f"//{folder}/..." for folder in folders))

    def forbid(why, sources, targets):
        way = graph.path(sources, targets - sources)
        if way:
            found.append(f"layers: {why}: {' '.join(way)}")

    found = []
    pure = graph.pure() | set(pure_too)
    library = under("worker_runtime") | set(library_too)
    lowest = graph.matching("//rendezvous/base:ids", "//rendezvous/base:time", "//rendezvous/base:check")
    products = under("rendezvous", "process", "launcher", "worker_runtime", "examples", "bench", "proto")
    ours = {label for label in products if graph.classes[label] in ("cc_library", "cc_binary")}
    distribution_grpc = graph.matching("@grpc//...")
    grpc = (distribution_grpc | graph.matching("//rendezvous/net:channel")
            | under("proto", "rendezvous/wire", "rendezvous/server", "rendezvous/etcd", "rendezvous/client"))

    forbid("pure code reaches code that is not", pure, ours - lowest - pure | distribution_grpc | graph.matching("@zlib//..."))
    forbid("the lowest layer reaches one above", under("rendezvous/base"), ours)
    forbid("the rendezvous reaches the launcher or the library", under("rendezvous"),
           under("launcher", "worker_runtime") - {"//worker_runtime:env_contract"})
    forbid("the process code reaches more than the lowest layer", under("process"), ours - under("rendezvous/base") | grpc)
    forbid("the store reaches gRPC", under("rendezvous/store"), grpc)
    forbid("the library reaches the launcher or gRPC", library, under("launcher", "bench") | grpc)
    forbid("an example or the bench reaches more than the library", under("examples", "bench"), under("launcher") | grpc)
    # No product reaches a test: the graph then holds none.
    forbid("a product depends on tests", ours, {label for label in graph.classes if label.startswith("//tests")})
    return found


def main(path, *extra):
    try:
        found = breaches(Graph(path), extra[:1], extra[1:])
    except LookupError as error:
        found = [f"layers: {error.args[0]}"]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__.splitlines()[0])
    sys.exit(main(*sys.argv[1:]))
