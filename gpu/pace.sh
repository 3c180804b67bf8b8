# pace: waits until $every hundredths of a second after it did so before. A
# quarter of that is slept in any case, for the host's sake.
exec 2>/dev/null
fractions=1 due=
sleep 0.01 || fractions=
pace() {
	up= left=$every
	[ -r /proc/uptime ] && read -r up _ </proc/uptime
	up=${up%.*}${up#*.}
	if [ -n "$up" ]; then
		due=$((${due:-$up} + every))
		[ "$due" -ge "$((up + every / 4 + 1))" ] || due=$((up + every / 4 + 1))
		left=$((due - up))
	fi
	if [ -n "$fractions" ]; then
		hundredths=0$((left % 100))
		sleep "$((left / 100)).${hundredths#"${hundredths%??}"}"
	else
		sleep "$(((left + 99) / 100))"
	fi
}
