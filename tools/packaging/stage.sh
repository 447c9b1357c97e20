# What is installed, and where: for tools/install and tools/package. Sourced behind lib.sh.
# shellcheck shell=bash

packaging=tools/packaging

# A header of each library whose code is in the programs; its package has the licence.
third_party_headers=(
  grpcpp/grpcpp.h google/protobuf/message.h absl/base/config.h re2/re2.h ares.h openssl/ssl.h zlib.h
  boost/version.hpp spdlog/spdlog.h fmt/core.h CLI/CLI.hpp nlohmann/json.hpp xxhash.h
)

ddprun_version() { sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' rendezvous/base/version.h; }

# The address of the project's page, without a slash at its end; empty if it has none.
project_url() { tr -d '[:space:]' <PROJECT_URL | sed 's:/*$::'; }

# The packages with code in the programs, a line "name version" for each.
third_party_packages() {
  local header file name
  for header in "${third_party_headers[@]}"; do
    for file in "/usr/include/$header" "/usr/include/x86_64-linux-gnu/$header"; do
      [[ ! -e $file ]] || break
    done
    name=$(dpkg-query -S "$file" 2>/dev/null | head -n 1 | cut -d: -f1) || true
    [[ -n $name && -r /usr/share/doc/$name/copyright ]] ||
      die "the licence of $header is not on this machine (no /usr/share/doc/${name:-PACKAGE}/copyright); run tools/setup"
    dpkg-query -W -f '${Package} ${Version}\n' "$name"
  done
}

third_party_licenses() {
  local listed name version
  listed=$(third_party_packages)
  echo "ddprun and libddp contain code of these libraries, each under its own licence."
  while read -r name version; do
    printf '\n%s\n%s\n\n' "==== $name" "$version"
    cat "/usr/share/doc/$name/copyright"
  done <<<"$listed"
}

# stage DIR: fills DIR, a prefix such as /usr/local, with what dist/ has. Every file is written beside
# its place and then moved, so that a ddprun that runs from there keeps its file.
stage() {
  local to=$1 version shell new documents file
  version=$(ddprun_version)
  [[ -x dist/ddprun && -f dist/lib/libddp.so ]] || tools/build
  new=$to/.ddprun.$$
  rm -rf "$new"
  mkdir -p "$new"/{bin,lib/cmake/ddp,lib/pkgconfig,include,share/man/man1,share/doc/ddprun}
  install -m 755 dist/ddprun "$new/bin/ddprun"
  install -m 644 dist/lib/{libddp.a,libddp.so,libddp_stop.so} "$new/lib/"
  cp -r dist/include/ddp "$new/include/ddp"
  strip --strip-unneeded "$new"/lib/*.so
  install -m 644 "$packaging/ddpConfig.cmake" "$new/lib/cmake/ddp/"
  cat >"$new/lib/cmake/ddp/ddpConfigVersion.cmake" <<END
set(PACKAGE_VERSION $version)
if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
END
  sed "s/@VERSION@/$version/" "$packaging/ddp.pc" >"$new/lib/pkgconfig/ddp.pc"
  dist/ddprun --help-all | python3 "$packaging/man_page.py" "$version" | gzip -9n >"$new/share/man/man1/ddprun.1.gz"
  for shell in bash zsh fish; do
    case $shell in
      bash) set -- share/bash-completion/completions ddprun ;;
      zsh) set -- share/zsh/site-functions _ddprun ;;
      fish) set -- share/fish/vendor_completions.d ddprun.fish ;;
    esac
    mkdir -p "$new/$1"
    dist/ddprun completion "$shell" >"$new/$1/$2"
  done
  install -m 644 LICENSE "$new/share/doc/ddprun/"
  documents=$("$packaging/documents.py")
  while IFS= read -r file; do
    install -D -m 644 "$file" "$new/share/doc/ddprun/$file"
  done <<<"$documents"
  third_party_licenses >"$new/share/doc/ddprun/THIRD_PARTY_LICENSES"
  chmod -R u+w,a+rX "$new"
  # With + find fails when its command does.
  (cd "$new" && find . -type d -exec sh -ec 'for each; do mkdir -p "$0/$each"; done' "$to" {} + &&
    find . -type f -exec sh -ec 'for each; do mv -f "$each" "$0/$each"; done' "$to" {} +)
  rm -rf "$new"
}
