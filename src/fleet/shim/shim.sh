#!/bin/sh
# Owns the process of one turn: starts its agent at most once, records how it ended, and can end all of it.
#
#   shim.sh start   DIR [SHELL]   start the agent, detached; print the state. Repeating it changes nothing.
#   shim.sh own     DIR [SHELL]   the same in this process, which stays: for who sees to it that it is detached, and
#                                 has all that is left of a run ended, or sees that there is nothing
#   shim.sh pane    DIR [SHELL]   the same in the foreground of this terminal; prints nothing
#   shim.sh state   DIR           print absent | starting | running | orphaned | exited | lost | never, with details
#   shim.sh void    DIR           forbid it from ever starting; print the state
#   shim.sh stop    DIR [GRACE]   end every process of the run: TERM, and KILL after GRACE seconds; print the state
#   shim.sh members DIR           print the pid of every live process of the run
#
# The caller puts into DIR: `launch` (sh text, sourced; ends in exec), and if wanted `in` (the agent's stdin),
# `marker` (FLEET_RUN=<id>, as exported by `launch`), `cgroup` (a folder that the agent moves itself into) and
# `secrets` (sh text, sourced and emptied before `launch`, or when it is seen that nobody will).
# The shim adds: `out`, `err` (the agent writes them itself, so nothing dies with a reader; in a pane, `err` is the
# screen as a failed agent left it), and
#   claim.PID.START.BOOT   a process on its way to becoming the agent. All is in the name, which appears at once.
#   child                  "pid start boot shim:start leader:start place" of the agent, its shim and its session's
#                          leader, where place is "confined" in its cgroup, else "free"; or "void". Made with O_EXCL
#                          by the agent's process before it becomes the agent, or by an observer who settles that
#                          none will come. An empty one means that its maker died in between, so that nobody can
#                          ever start.
#   exit                   the exit code, and when it was seen, as processes' births are told. A block is reserved for
#                          it beforehand: a full disk cannot lose it.
#   swept                  the exit code again: the agent has ended, and its shim or `stop` found nothing of it left
# A process is a pid and its start time. Names and ages prove nothing, and pids come round again.
# POSIX sh (dash, bash, busybox). Builtins are preferred: a fork costs more than all the rest of `start`.

# First in the file, being on the way from the call to the agent's first instruction.
if [ "$1" = _agent ]; then
  # The odd names keep clear of variables that the agent is to inherit.
  _fleet_d=$2 _fleet_shim=$3 _fleet_boot=$4 _fleet_leader=$5 _fleet_mask=$6 _fleet_place=free
  IFS= read -r _fleet_x < /proc/self/stat
  set -- ${_fleet_x##*) }
  shift 19
  if [ -e "$_fleet_d/cgroup" ] && IFS= read -r _fleet_x < "$_fleet_d/cgroup"; then
    { echo "$$" > "$_fleet_x/cgroup.procs"; } 2>/dev/null
    while IFS= read -r _fleet_y; do
      case $_fleet_y in 0::*"/${_fleet_x##*/}") _fleet_place=confined ;; esac
    done < /proc/self/cgroup
  fi
  { echo 500 > /proc/self/oom_score_adj; } 2>/dev/null  # short of memory, the kernel takes the agent, not the shim
  printf '' > "$_fleet_d/claim.$$.$1.$_fleet_boot" || exit 72
  set -C
  { echo "$$ $1 $_fleet_boot $_fleet_shim ${_fleet_leader:-$$:$1} $_fleet_place" > "$_fleet_d/child"; } 2>/dev/null ||
    exit 72
  set +C
  # To whoever waits for it in `start`, or for `own`; he may be gone, and that is no reason to die.
  trap '' PIPE
  { echo "running pid=$$ start=$1 boot=$_fleet_boot shim=$_fleet_shim" >&3; } 2>/dev/null
  trap - PIPE
  exec 3>&-
  shift "$#"
  if [ -e "$_fleet_d/secrets" ]; then
    . "$_fleet_d/secrets"
    : > "$_fleet_d/secrets"  # emptied, for to delete it would take a fork
  fi
  umask "$_fleet_mask"
  . "$_fleet_d/launch"
  exit 126
fi

verb=$1 d=$2
case $d in
  /*) ;;
  *) d=$PWD/$d ;;
esac
boot=none
{ read -r boot < /proc/sys/kernel/random/boot_id; } 2>/dev/null

# Nobody else may read what is put into DIR. The agent gets back the mask that its user has set.
mask=
case $verb in
  start | own | pane)
    {
      while read -r word text; do
        case $word in Umask:) mask=$text; break ;; esac
      done < /proc/self/status
    } 2>/dev/null
    [ -n "$mask" ] || mask=$(umask)
    ;;
esac
umask 077

nap() { sleep "$1" 2>/dev/null || sleep 1; }

fail() {
  echo "$1" >&2
  exit 75
}

look() { # Look at process $1: ppid, pgrp, session, born. Fails for none (born is empty then) and for a zombie.
  born= text=
  { while IFS= read -r part; do text=$text$part; done < "/proc/$1/stat"; } 2>/dev/null
  [ -n "$text" ] || return 1
  set -- ${text##*) }
  status=$1 ppid=$2 pgrp=$3 session=$4
  shift 19
  born=$1
  case $status in Z | X) return 1 ;; esac
}

is_alive() { look "$1" && [ "$born" = "$2" ]; }

is_free_or() { # Is number $1 unused, or still that of the process born at $2? (Zombies count.)
  look "$1"
  case $born in '' | "$2") ;; *) return 1 ;; esac
}

has_ended() { { read -r code ended < "$d/exit"; } 2>/dev/null && [ -n "$code" ]; }

read_child() { { read -r pid start was shim leader place < "$d/child"; } 2>/dev/null && [ -n "$pid" ]; }

settle() { # Take the agent's place for good, if it is free.
  set -C
  { echo void > "$d/child"; } 2>/dev/null
  set +C
}

look_at_claims() { # claims: none | live | dead | reboot
  claims=none
  for file in "$d"/claim.*; do
    [ -e "$file" ] || continue
    name=${file##*/claim.}
    number=${name%%.*} name=${name#*.}
    if [ "${name#*.}" != "$boot" ]; then
      claims=reboot
    elif is_alive "$number" "${name%%.*}"; then
      claims=live
      return
    elif [ "$claims" = none ]; then
      claims=dead
    fi
  done
}

tell_over() { # Nobody will read the secrets any more.
  if [ -s "$d/secrets" ]; then { printf '' > "$d/secrets"; } 2>/dev/null; fi
  echo "$1"
}

tell_running() { echo "running pid=$pid start=$start boot=$boot shim=$shim"; }

state_of_child() { # The state once `child` names an agent; fails while the shim is about to record its end.
  if [ "$pid" = void ]; then
    tell_over never
  elif [ "$was" != "$boot" ]; then
    tell_over "lost reason=reboot"
  elif is_alive "${shim%:*}" "${shim#*:}"; then
    is_alive "$pid" "$start" || [ "$rounds" -gt 150 ] || return 1
    tell_running
  elif is_alive "$pid" "$start"; then
    echo "orphaned pid=$pid start=$start boot=$boot"
  elif has_ended; then
    tell_over "exited code=$code"
  else
    tell_over "lost reason=shimdied"
  fi
}

state() {
  rounds=0
  while :; do
    rounds=$((rounds + 1))
    if has_ended; then
      tell_over "exited code=$code"
      return
    elif read_child; then
      state_of_child && return
      nap 0.01
      continue
    fi
    look_at_claims
    case $claims in
      none) [ -e "$d/child" ] || { echo absent; return; } ;;
      live) echo starting; return ;;
      # Its last seconds may not have reached the disk, so that this is all that is left of an agent that ran.
      reboot) tell_over "lost reason=reboot"; return ;;
    esac
    # Nobody is on the way any more. What `child` says now is final, once it is there.
    settle
    read_child || { tell_over never; return; }
  done
}

aside() { # Run a command without the terminal, which may be gone: some shells give up for want of it.
  "$@" 2>/dev/null &
  wait "$!"
}

note_now() { # now: the time as births are told, in hundredths of a second since the boot
  now=
  { read -r now text < /proc/uptime; } 2>/dev/null
  now=${now%.*}${now#*.}
}

record() { # Write how the agent ended, if it was ours. A full disk is waited for.
  trap - EXIT
  settle
  if read_child && [ "$shim" = "$me" ]; then
    # Those shells come here straight from the agent's end. They still know its code.
    [ -n "$ended_with" ] || { wait "$pid"; ended_with=$?; }
    note_now
    tries=0
    until write_end; do
      tries=$((tries + 1))
      [ -d "$d" ] && [ "$tries" -lt 600 ] || exit 73
      aside sleep 1
    done
    if [ -s "$d/secrets" ]; then { printf '' > "$d/secrets"; } 2>/dev/null; fi
    # What has a cgroup is swept by who called `own`.
    [ -n "$is_seen_to" ] && [ -e "$d/cgroup" ] || aside rm -f "$d"/claim.* "$d"/exit.[0-9]* "$d/secrets"
    aside sync "$d/exit"
  else
    aside rm -f "$d/claim.$$."* "$reserved"
  fi
}

write_end() { # Whoever reads it meanwhile finds it empty, or whole.
  [ ! -e "$d/exit" ] && { printf '%-63s\n' "$ended_with $now" > "$d/exit"; } 2>/dev/null && return
  { printf '%-63s\n' "$ended_with $now" 1<> "$reserved"; } 2>/dev/null && aside mv -f "$reserved" "$d/exit"
}

reserve() { # Make room for the exit code before there is anything to record.
  reserved=$d/exit.$$
  { printf '%-63s\n' '' > "$reserved"; } 2>/dev/null && return
  rm -f "$reserved"
  fail "cannot write to $d: is the disk full?"
}

own() { # Become the shim of this folder.
  look "$$"
  me=$$:$born ended_with=
  # Handlers, not '': an ignored signal would stay ignored in the agent.
  trap : HUP INT QUIT TERM
  trap record EXIT
  printf '' > "$d/claim.$$.$born.$boot" || exit 71
}

own_detached() {
  own
  input=/dev/null
  [ ! -e "$d/in" ] || input=$d/in
  # In the foreground of this shell: what it starts with & would ignore INT and QUIT for ever.
  setsid "$shell" "$0" _agent "$d" "$me" "$boot" "" "$mask" < "$input" >> "$d/out" 2>> "$d/err"
  ended_with=$?
  [ -z "$is_seen_to" ] || return 0
  # Told before the end is, so that nobody who sees the end need look again.
  if read_child && is_deserted; then { echo "$ended_with" > "$d/swept"; } 2>/dev/null; fi
}

own_here() { # Fails if there was nothing to start.
  [ ! -e "$d/child" ] || return 1
  [ -e "$d/launch" ] || fail "nothing to launch in $d"
  reserve
  unset FLEET_RUN
  is_seen_to=yes
  exec 3>&1 > /dev/null 2>&1
  own_detached
}

bring_back() { # Suspended (ctrl-z) is not ended, and nobody else is there to go on with it.
  read_child && [ "$shim" = "$me" ] && is_alive "$pid" "$start" || return
  fg > /dev/null  # and stderr as it is: bash takes it for the terminal
  stopped_with=$?
  bring_back  # no loop, for bash leaves those when something is suspended
}

own_pane() { # $1 is the leader of the terminal's session, or "-"
  own
  trap : TSTP  # typed while the shim has the terminal between two suspensions
  set -m
  "$shell" "$0" _agent "$d" "$me" "$boot" "$1" "$mask"
  stopped_with=$?
  bring_back
  # What stands on the screen is all that a failed agent said, and it goes with the terminal.
  [ "$stopped_with" = 0 ] || [ -z "$TMUX_PANE" ] || aside tmux capture-pane -p -t "$TMUX_PANE" >> "$d/err"
  ended_with=$stopped_with
}

pane() {
  [ ! -e "$d/child" ] || return 0
  [ -e "$d/launch" ] || fail "nothing to launch in $d"
  reserve
  unset FLEET_RUN
  look "$$"
  leader=-
  [ "$session" != "$$" ] || leader=$$:$born
  # When the terminal goes, the kernel tells its session's leader, and by that one's death the agent. So the
  # leader must die of it, while the shim must not: they are two.
  "$shell" "$0" _own_pane "$d" "$shell" "$reserved" "$leader" "$mask"
}

start() { # Fails if there was nothing to start, or it could not be.
  [ ! -e "$d/child" ] || return 1
  [ -e "$d/launch" ] || fail "nothing to launch in $d"
  reserve
  unset FLEET_RUN  # of whoever calls: the shim is no process of that run
  # The agent's process says on 3 that it is recorded. If it cannot, all who have it open end.
  own_in_background 3>&1 | IFS= read -r text
}

own_in_background() {
  if ! setsid -f "$shell" "$0" _own "$d" "$shell" "$reserved" "$mask" < /dev/null > /dev/null 2>&1; then
    # busybox has no -f. An agent that is started this way ignores INT and QUIT.
    setsid "$shell" "$0" _own "$d" "$shell" "$reserved" "$mask" < /dev/null > /dev/null 2>&1 &
  fi
}

begin_search() {
  is_group_ours= is_home_ours=
  find_callers
}

find_callers() { # This process and its ancestors: they must live to see the end of it.
  callers=" 1 " next=$$
  while [ "$next" -gt 1 ] && look "$next"; do
    callers="$callers$next "
    next=$ppid
  done
}

find_marked() { # Processes that carry the run's marker in their environment.
  marked=" "
  { IFS= read -r marker < "$d/marker"; } 2>/dev/null
  case $marker in FLEET_RUN=????*) ;; *) return ;; esac
  for file in $(grep -lszxF -e "$marker" /proc/[0-9]*/environ); do
    file=${file#/proc/}
    marked="$marked${file%/environ} "
  done
}

find_confined() { # Processes in the run's cgroup. One that holds our callers is not the run's own.
  confined=" "
  { IFS= read -r cgroup < "$d/cgroup"; } 2>/dev/null || return
  while read -r number; do
    case $callers in *" $number "*) confined=" "; return ;; esac
    confined="$confined$number "
  done 2>/dev/null < "$cgroup/cgroup.procs"
}

# Where nobody is in the agent's cgroup or session, or has the marker, there is no need to look at every process one by
# one. A search that may have failed is no answer.
is_deserted() { # once the agent itself has ended
  [ "$place" = confined ] && [ "$was" = "$boot" ] && is_cgroup_empty && is_marker_unused && is_session_empty
}

is_cgroup_empty() { # and those below it
  { IFS= read -r cgroup < "$d/cgroup"; } 2>/dev/null || return
  populated=
  while read -r word number; do
    case $word in populated) populated=$number ;; esac
  done 2>/dev/null < "$cgroup/cgroup.events"
  [ "$populated" = 0 ]
}

is_marker_unused() { # The search carries the marker itself, and must find that, and only that.
  { IFS= read -r marker < "$d/marker"; } 2>/dev/null
  case $marker in FLEET_RUN=????*) ;; *) return 1 ;; esac
  set -- /proc/[0-9]*/environ  # listed before it is there
  found=$(FLEET_RUN=${marker#*=} grep -lszxF -e "$marker" /proc/self/environ "$@")
  [ "$found" = /proc/self/environ ]
}

is_session_empty() { # Its groups are within it. The search must find this process, too.
  found=$(grep -lsE "^$$ \(|\) . [0-9]+ [0-9]+ ($pid|${leader%:*}) " /proc/[0-9]*/stat)
  [ "$found" = "/proc/$$/stat" ]
}

gather() { # members: " pid:start pid:start " of every live process of the run
  members=" " related=" " table= suspects= group=- home=- ended=
  has_ended
  find_marked
  find_confined
  if [ "$was" = "$boot" ]; then
    if is_free_or "$pid" "$start"; then group=$pid is_group_ours=${born:-$is_group_ours}; fi
    if [ "$leader" != - ] && is_free_or "${leader%:*}" "${leader#*:}"; then
      home=${leader%:*} is_home_ours=${born:-$is_home_ours}
    fi
    if is_alive "$pid" "$start"; then related=" $pid "; fi
  fi
  for file in /proc/[0-9]*; do
    number=${file#/proc/}
    case $callers in *" $number "*) continue ;; esac
    look "$number" || continue
    case $number:$born in
      "$pid:$start") ;;
      "$shim" | "$leader") continue ;;
    esac
    is_known=
    case "$marked$confined$related" in *" $number "*) is_known=yes; add ;; esac
    case "$group $home" in
      "$pgrp "* | *" $session")
        weigh
        [ -n "$is_known" ] || suspects="$suspects $number:$born/$ppid/$pgrp/$session"
        ;;
      *) [ -n "$is_known" ] || table="$table $number:$born/$ppid" ;;
    esac
  done
  judge_suspects
  find_descendants
}

# The kernel gives out no number that still names a group or session. But one that is free now may have been given
# out since the agent's end, to a stranger who died before what he started. So a group or session without its leader
# is ours only if one in it is known otherwise, or was born before the agent's end. Once known, it stays so.
weigh() {
  [ -n "$is_known" ] || { [ -n "$ended" ] && [ "$born" -le "$ended" ]; } || return
  if [ "$session" = "$home" ]; then is_home_ours=yes; fi
  case $pgrp:$leader in
    "$group:-" | "$group:$session:"*) is_group_ours=yes ;;
  esac
}

judge_suspects() {
  for row in $suspects; do
    number=${row%%:*} born=${row#*:} session=${row##*/}
    row=${row%/*}
    pgrp=${row##*/}
    row=${row%/*}
    born=${born%%/*}
    if [ -n "$is_home_ours" ] && [ "$session" = "$home" ]; then
      add
    elif [ -n "$is_group_ours" ] && [ "$pgrp" = "$group" ]; then
      add
    else
      table="$table $row"
    fi
  done
}

add() {
  members="$members$number:$born "
  related="$related$number "
}

find_descendants() {
  grown=yes
  while [ -n "$grown" ]; do
    grown= rest=
    for row in $table; do
      case $related in
        *" ${row#*/} "*)
          number=${row%%:*} born=${row#*:}
          born=${born%/*}
          add
          grown=yes
          ;;
        *) rest="$rest $row" ;;
      esac
    done
    table=$rest
  done
}

signal_members() {
  for member in $members; do
    if is_alive "${member%:*}" "${member#*:}"; then kill -s "$1" "${member%:*}" 2>/dev/null; fi
  done
}

is_any_alive() {
  for member in $members; do
    if is_alive "${member%:*}" "${member#*:}"; then return 0; fi
  done
  return 1
}

count_ticks() { # $1 seconds, with up to two decimals, in ticks of 0.05 s
  whole=${1%%.*}
  decimals=${1#"$whole"}00
  decimals=${decimals#.}
  decimals=${decimals%"${decimals#??}"}
  ticks=$((${whole:-0} * 20 + (1$decimals - 100) / 5))
}

end_politely() { # until none is left, or the time is up
  while gather && [ "$members" != " " ]; do
    signal_members TERM
    while is_any_alive; do
      [ "$ticks" -gt 0 ] || return
      ticks=$((ticks - 1))
      nap 0.05
    done
  done
}

kill_all() { # New ones may be born while the last are being killed: look until there is none.
  rounds=0
  while gather && [ "$members" != " " ] && [ "$rounds" -lt 200 ]; do
    rounds=$((rounds + 1))
    if [ "$confined" != " " ]; then { echo 1 > "$cgroup/cgroup.kill"; } 2>/dev/null; fi
    signal_members KILL
    is_any_alive && nap 0.01
  done
}

stop() {
  [ -d "$d" ] || mkdir -p "$d" || exit 70
  settle
  until read_child || { look_at_claims && [ "$claims" != live ]; }; do nap 0.01; done
  read_child && [ "$pid" != void ] || return
  # What was found to be gone with its agent stays gone: nobody is left who could start more of it.
  if has_ended && [ -e "$d/swept" ]; then return; fi
  members=" "
  if ! { has_ended && is_deserted; }; then
    begin_search
    count_ticks "$1"
    end_politely
    [ "$members" = " " ] || kill_all
  fi
  if has_ended && [ "$members" = " " ]; then
    { echo "$code" > "$d/swept"; } 2>/dev/null
    rm -f "$d"/claim.* "$d"/exit.[0-9]* "$d/secrets"
  fi
}

shell=${3:-sh} is_seen_to=
case $verb in
  start) { start && read_child && tell_running; } || state ;;
  _own) reserved=$4 mask=$5; own_detached ;;
  own) own_here || state ;;
  pane) pane ;;
  _own_pane) reserved=$4 mask=$6; own_pane "$5" ;;
  state) state ;;
  void) [ -d "$d" ] || mkdir -p "$d" || exit 70; settle; state ;;
  stop) stop "${3:-10}"; state ;;
  members)
    if read_child && [ "$pid" != void ]; then
      begin_search
      gather
      for member in $members; do echo "${member%:*}"; done
    fi
    ;;
  *) fail "usage: shim.sh start|own|pane|state|void|stop|members DIR" ;;
esac
