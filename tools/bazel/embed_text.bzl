"""A text file as a C string in the program."""

def embed_text(name, src, symbol, namespace):
    """A cc_library with `<name>.h`, which declares `extern const char <symbol>[]`, ended by NUL.

    Args:
      name: of the library and, with .h, of the header.
      src: the text, without the seven bytes )TEXT" and a newline's company.
      symbol: the array's name.
      namespace: the array's namespace.
    """
    header = native.package_name() + "/" + name + ".h"
    native.genrule(
        name = name + "_text",
        srcs = [src],
        outs = [name + ".h", name + ".cc"],
        cmd = """set -e
            printf '#pragma once\\nnamespace %s {{\\nextern const char %s[];\\n}}\\n' {namespace} {symbol} > $(location {name}.h)
            {{ printf '#include "%s"\\nconst char %s::%s[] = R"TEXT(' {header} {namespace} {symbol}
               cat $<; printf ')TEXT";\\n'; }} > $(location {name}.cc)""".format(
            header = header,
            name = name,
            namespace = namespace,
            symbol = symbol,
        ),
    )
    native.cc_library(
        name = name,
        srcs = [name + ".cc"],
        hdrs = [name + ".h"],
    )
