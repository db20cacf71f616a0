#!/usr/bin/env bash
# with-ssh-host.sh COMMAND…: runs a command in a network namespace of its own, from which it can reach one host, another
# namespace with an SSH server. As root on Debian. The namespaces end with the command.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
  [ "$(id -u)" = 0 ] || { echo "with-ssh-host.sh: only root can make namespaces" >&2; exit 1; }
  for program in /usr/sbin/sshd /usr/bin/ssh-keygen /sbin/ip; do
    [ -x $program ] || { echo "with-ssh-host.sh: run: apt-get install openssh-server openssh-client iproute2" >&2; exit 1; }
  done
  exec unshare --net "$0" --inside "$@"
fi
shift

D=$(mktemp -d)
host=
finish() {
  [ -z "$host" ] || kill "$host" 2>/dev/null || true
  rm -rf "$D"
}
trap finish EXIT

ip link set lo up
mkdir -p "$D/.ssh" /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$D/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$D/.ssh/id_ed25519"
install -m 600 "$D/.ssh/id_ed25519.pub" "$D/authorized_keys"
echo "10.79.0.2 $(cat "$D/host_key.pub")" >"$D/.ssh/known_hosts"
printf '%s\n' "HostKey $D/host_key" "AuthorizedKeysFile $D/authorized_keys" "StrictModes no" "UsePAM no" \
  "PermitRootLogin prohibit-password" "PrintMotd no" "PidFile none" >"$D/sshd.conf"

# The host: it listens when it has its address, which comes after the namespace.
mkfifo "$D/ready" "$D/go"
unshare --net sh -c "echo >'$D/ready'; read _ <'$D/go'; exec /usr/sbin/sshd -D -e -f '$D/sshd.conf' 2>'$D/sshd.log'" &
host=$!
read -r _ <"$D/ready"
ip link add eth0 type veth peer name eth0 netns "$host"
ip addr add 10.79.0.1/24 dev eth0
ip link set eth0 up
nsenter --target "$host" --net sh -c 'ip link set lo up; ip addr add 10.79.0.2/24 dev eth0; ip link set eth0 up'
echo >"$D/go"
for _ in $(seq 50); do
  (exec 3<>/dev/tcp/10.79.0.2/22) 2>/dev/null && break
  sleep 0.1
done

IPYBOX_SSH_HOME=$D IPYBOX_SSH_HOST=10.79.0.2 IPYBOX_SSH_CLIENT=10.79.0.1 "$@"
