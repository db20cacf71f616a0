#!/usr/bin/env bash
# A Slurm cluster and two SSH hosts on one bare Debian machine, as root. A head and two nodes are network namespaces with
# host names of their own. They reach each other and nothing else. They share the file system of this machine, except
# $CLUSTER_DIR/private, which is empty on nodes. Everything is below $CLUSTER_DIR.
#
#     cluster.sh up              installs Slurm and OpenSSH, and starts all of it
#     cluster.sh start HOST      starts the daemons of `head`, `node1` or `node2` again, after they were killed
#     cluster.sh down            ends all of it
set -euo pipefail

D=${CLUSTER_DIR:-/run/ipybox-cluster}
export SLURM_CONF=$D/slurm.conf
NODES="node1 node2"

packages() {
  local missing=() option=-oDPkg::Lock::Timeout=120
  for package in slurmctld slurmd slurm-client munge openssh-server openssh-client iproute2; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  # Debian starts daemons when it installs them, unless this program forbids it.
  local policy=/usr/sbin/policy-rc.d created=
  if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' >$policy; chmod 755 $policy; created=1; fi
  [ -z "$created" ] || trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  apt-get "$option" update -qq
  DEBIAN_FRONTEND=noninteractive apt-get "$option" install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

# Says so where the machine can't make namespaces, as in most containers.
check_namespaces() {
  [ "$(id -u)" = 0 ] || { echo "cluster: only root can make network namespaces" >&2; exit 1; }
  unshare --net --uts --mount true 2>/dev/null ||
    { echo "cluster: this machine can't make network namespaces: as root of a container, give it CAP_SYS_ADMIN" >&2; exit 1; }
}

network() {
  local number=11
  for name in head $NODES; do
    ip netns add "ipybox-$name"
    ip -n "ipybox-$name" link set lo up
  done
  ip -n ipybox-head link add br0 type bridge
  ip -n ipybox-head addr add 10.77.0.1/24 dev br0
  ip -n ipybox-head link set br0 up
  for name in $NODES; do
    ip link add "v$name" netns ipybox-head type veth peer name eth0 netns "ipybox-$name"
    ip -n ipybox-head link set "v$name" master br0 up
    ip -n "ipybox-$name" addr add "10.77.0.$number/24" dev eth0
    ip -n "ipybox-$name" link set eth0 up
    number=$((number + 1))
  done
}

# Runs a program as on a host of the cluster.
on() {
  local name=$1
  shift
  ip netns exec "ipybox-$name" unshare --uts --mount --propagation slave sh -c \
    'hostname "$0"; mount --bind "$1" "$2"; shift 2; exec "$@"' "$name" "$D/only-$name" "$D/private" "$@"
}

slurm_conf() {
  cat <<C
ClusterName=ipybox
SlurmctldHost=head(10.77.0.1)
AuthType=auth/munge
AuthInfo=socket=$D/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool.%n
SlurmctldPidFile=$D/slurmctld.pid
SlurmdPidFile=$D/slurmd.%n.pid
SlurmctldLogFile=$D/slurmctld.log
SlurmdLogFile=$D/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
SlurmdTimeout=15
KillWait=5
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
InactiveLimit=0
NodeName=node1 NodeAddr=10.77.0.11 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=8000
NodeName=node2 NodeAddr=10.77.0.12 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=8000
PartitionName=main Nodes=ALL Default=YES State=UP
C
}

# Starts the daemons of a host.
start() {
  local name=$1
  if [ "$name" = head ]; then
    # Without the state of an earlier one, slurmctld must be told that there is none.
    if [ -e "$D/state/clustername" ]; then on head slurmctld; else on head slurmctld -c; fi
  else
    on "$name" slurmd -N "$name"
    on "$name" /usr/sbin/sshd -f "$D/sshd.$name.conf"
  fi
}

slurm() {
  head -c 1024 /dev/urandom >"$D/munge.key"
  chmod 400 "$D/munge.key"
  slurm_conf >"$D/slurm.conf"
  echo CgroupPlugin=cgroup/v1 >"$D/cgroup.conf"
  munged --force --key-file="$D/munge.key" --socket="$D/munge.socket" --pid-file="$D/munged.pid" \
    --log-file="$D/munged.log" --seed-file="$D/munge.seed"
  for name in head $NODES; do start "$name"; done
  for _ in $(seq 100); do
    [ "$(ip netns exec ipybox-head sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return
    sleep 0.2
  done
  echo "cluster: the nodes did not become idle:" >&2
  ip netns exec ipybox-head sinfo >&2 || true
  return 1
}

ssh_hosts() {
  ssh-keygen -q -t ed25519 -N '' -f "$D/host_key"
  ssh-keygen -q -t ed25519 -N '' -f "$D/user_key"
  install -m 600 "$D/user_key.pub" "$D/authorized_keys"
  mkdir -p /run/sshd
  for name in $NODES; do
    printf '%s\n' "HostKey $D/host_key" "AuthorizedKeysFile $D/authorized_keys" "PidFile $D/sshd.$name.pid" \
      "StrictModes no" "PermitRootLogin prohibit-password" "UsePAM no" "PrintMotd no" >"$D/sshd.$name.conf"
  done
}

up() {
  check_namespaces
  packages
  down
  mkdir -p "$D/state" "$D/private"
  for name in head $NODES; do mkdir -p "$D/spool.$name" "$D/only-$name"; done
  network
  ssh_hosts
  slurm
}

down() {
  for file in slurmd.node1 slurmd.node2 slurmctld munged sshd.node1 sshd.node2; do
    [ -s "$D/$file.pid" ] && kill "$(cat "$D/$file.pid")" 2>/dev/null || true
  done
  for name in $NODES head; do
    # What still runs there: only processes in namespaces that this script made.
    if ip netns pids "ipybox-$name" >/dev/null 2>&1; then
      ip netns pids "ipybox-$name" | xargs -r kill -9 2>/dev/null || true
      ip netns del "ipybox-$name"
    fi
  done
  rm -rf "$D"
}

case ${1:-} in
up) up ;;
start) start "${2:?the name of a host}" ;;
down) down ;;
*) echo "usage: $0 up | start HOST | down" >&2; exit 2 ;;
esac
