# Prints the memory of the host and of the followed processes, again and again,
# until nobody reads it. Followed are the processes whose environment holds the
# mark, and what they have started. "-" stands for what there is not:
#   memory TOTAL-KIB AVAILABLE-KIB LIMIT-BYTES CURRENT-BYTES INACTIVE-FILE-BYTES
#   cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …
#   process PID RESIDENT-KIB PEAK-KIB
#   end
# $1: root of the file system; $2: mark, empty for none; $3: interval in
# hundredths of a second; $4: look for new processes in every so many rounds
proc=$1/proc cgroups=$1/sys/fs/cgroup mark=$2 every=$3 rescan=$4
[ -r "$proc/meminfo" ] || {
	echo "none $proc/meminfo"
	exit 0
}

# The lowest limit of the cgroup (version 2) that this shell is in.
at=
if [ -r "$proc/self/cgroup" ]; then
	while IFS=: read -r id _ path; do
		[ "$id" = 0 ] && at=$path
	done <"$proc/self/cgroup"
fi
group= limit=-
while :; do
	max=max
	[ -r "$cgroups$at/memory.max" ] && read -r max <"$cgroups$at/memory.max"
	if [ "$max" != max ] && { [ "$limit" = - ] || [ "$max" -lt "$limit" ]; }; then
		group=$cgroups$at limit=$max
	fi
	[ -n "${at%/}" ] || break
	at=${at%/*}
done

followed=' '
scan() {
	for f in $(grep -lsaF -e "$mark" "$proc"/[0-9]*/environ); do
		p=${f%/environ} p=${p##*/}
		case $followed in *" $p "*) ;; *) followed="$followed$p " ;; esac
	done
	p=
	for w in $(grep -s '^PPid:' "$proc"/[0-9]*/status /dev/null); do
		case $w in
		*/status:PPid:)
			p=${w%/status:PPid:} p=${p##*/}
			continue
			;;
		esac
		case $followed in *" $w "*)
			case $followed in *" $p "*) ;; *) followed="$followed$p " ;; esac
			;;
		esac
	done
	left=' '
	for p in $followed; do
		[ -r "$proc/$p/status" ] && left="$left$p "
	done
	followed=$left
}

round=0
while :; do
	[ -n "$mark" ] && [ $((round % rescan)) = 0 ] && scan
	round=$((round + 1))
	total=- available=- current=- inactive=- cpu=-
	while read -r k v _; do
		case $k in
		MemTotal:) total=$v ;;
		MemAvailable:)
			available=$v
			break
			;;
		esac
	done <"$proc/meminfo"
	if [ -n "$group" ]; then
		[ -r "$group/memory.current" ] && read -r current <"$group/memory.current"
		[ -r "$group/memory.stat" ] && while read -r k v; do
			[ "$k" = inactive_file ] && inactive=$v && break
		done <"$group/memory.stat"
	fi
	[ -r "$proc/stat" ] && read -r cpu <"$proc/stat"
	text="memory $total $available $limit $current $inactive
$cpu
"
	for p in $followed; do
		rss= peak=-
		[ -r "$proc/$p/status" ] && while read -r k v _; do
			case $k in
			VmHWM:) peak=$v ;;
			VmRSS:)
				rss=$v
				break
				;;
			esac
		done <"$proc/$p/status"
		[ -n "$rss" ] && text="${text}process $p $rss $peak
"
	done
	printf '%send\n' "$text" || exit 0
	pace
done
