#!/bin/bash
# sbom.sh: prints a bill of materials, SPDX 2.3 as JSON: attnd, and the Debian packages whose
# libraries a running attnd has.
#
#   tests/tools/sbom.sh VERSION ATTND LIBRARY...
#
# Linked libraries are those that the loader names (ldd); OpenBLAS, which attnd loads itself, is
# among them where it is installed.  Versions and licenses are those of dpkg and of the packages'
# copyright files: the license of `Files: *`, in SPDX's words where these are known here, and
# always in Debian's.
set -euo pipefail
export LC_ALL=C
version=$1
shift
created=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$1")}" '+%Y-%m-%dT%H:%M:%SZ')

# Paths of libraries that ELF files need, and of OpenBLAS.
libraries() {
    ldd "$@" | sed -nE 's/.* (\/[^ ]+) \(0x[0-9a-f]+\)$/\1/p; s/^[[:space:]]*(\/[^ ]+) \(0x[0-9a-f]+\)$/\1/p'
    /sbin/ldconfig -p | sed -nE 's/.*libopenblas\.so\.0 .*=> (.*)/\1/p' | sed -n 1p
}

# dpkg may know a file by its path below /usr or by the one that a link leads from.
owner() { # path
    local real
    real=$(realpath "$1")
    dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}" 2>/dev/null ||
        dpkg-query -S "$1" 2>/dev/null || dpkg-query -S "*/${1##*/}" 2>/dev/null || true
}

packages() {
    local path
    libraries "$@" | sort -u | while read -r path; do
        owner "$path" | sed -nE '1s/^([^ :]+)(:[a-z0-9]+)?: .*/\1/p'
    done | sort -u
}

# The license of `Files: *` in a copyright file of Debian's form; empty for one of another form.
debian_license() { # package
    awk '/^Files: *\*/ { all = 1 } all && /^License:/ { sub(/^License: */, ""); print; exit } /^$/ { all = 0 }' \
        "/usr/share/doc/$1/copyright" 2>/dev/null | tr -d '"\\'
}

spdx_license() { # Debian's words
    case $1 in
    Expat) echo MIT ;;
    Zlib | zlib) echo Zlib ;;
    BSD-3-clause | BSD-3-Clause) echo BSD-3-Clause ;;
    LGPL-2.1) echo LGPL-2.1-only ;;
    LGPL-2.1+) echo LGPL-2.1-or-later ;;
    LGPL-3+ | LGPLv3+) echo LGPL-3.0-or-later ;;
    'LGPL-3+ or GPL-2+' | 'GPL-2+ or LGPL-3+') echo 'LGPL-3.0-or-later OR GPL-2.0-or-later' ;;
    *) echo NOASSERTION ;;
    esac
}

# Characters of a package's name or version that a package URL does not take as they are.
purl() { sed 's/+/%2B/g; s/:/%3A/g' <<<"$1"; }

package() { # identifier, name, version, license, comment, purl or ""
    printf '    {"SPDXID": "%s", "name": "%s", "versionInfo": "%s", "downloadLocation": "NOASSERTION",\n' "$1" "$2" "$3"
    printf '     "filesAnalyzed": false, "licenseConcluded": "NOASSERTION", "licenseDeclared": "%s",\n' "$4"
    printf '     "licenseComments": "%s", "copyrightText": "NOASSERTION"' "$5"
    if [ -n "$6" ]; then
        printf ',\n     "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",\n'
        printf '                       "referenceLocator": "%s"}]' "$6"
    fi
    printf '}'
}

mapfile -t names < <(packages "$@")
[ "${#names[@]}" -gt 0 ] || { echo "sbom: no package of a linked library is found" >&2; exit 1; }

cat <<END
{
  "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
  "name": "attnd-$version",
  "documentNamespace": "https://attnd.invalid/spdx/attnd-$version-$(sha256sum "$1" | cut -c 1-32)",
  "creationInfo": {"created": "$created", "creators": ["Tool: attnd-sbom.sh-$version"]},
  "packages": [
END
package SPDXRef-attnd attnd "$version" MIT "LICENSE" ""
for name in "${names[@]}"; do
    read -r installed architecture < <(dpkg-query -W -f '${Version} ${Architecture}\n' "$name")
    license=$(debian_license "$name")
    printf ',\n'
    package "SPDXRef-${name//[^a-zA-Z0-9.-]/-}" "$name" "$installed" "$(spdx_license "$license")" \
        "Debian: ${license:-see its copyright file}" \
        "pkg:deb/debian/$(purl "$name")@$(purl "$installed")?arch=$architecture"
done
cat <<END

  ],
  "relationships": [
    {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-attnd"}
END
for name in "${names[@]}"; do
    printf '    ,{"spdxElementId": "SPDXRef-attnd", "relationshipType": "DEPENDS_ON", "relatedSpdxElement": "SPDXRef-%s"}\n' \
        "${name//[^a-zA-Z0-9.-]/-}"
done
printf '  ]\n}\n'
