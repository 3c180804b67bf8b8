# Prints what the amdgpu driver says of its devices, again and again, until
# nobody reads it. First a line for each device:
#   device FOLDER PCI-ADDRESS TOTAL-BYTES POWER-LIMIT-MICROWATTS UNIQUE-ID NAME
# then in each round, "-" standing for what there is not, and a line "end":
#   FOLDER USED-BYTES BUSY-PERCENT MEMORY-BUSY-PERCENT MICROWATTS MILLIDEGREES HERTZ MEMORY-HERTZ
# $1: root of the file system; $2: interval in hundredths of a second
cards=$1/sys/class/drm every=$2

# value FILE: its first line, or "-"
value() {
	v=
	[ -r "$1" ] && read -r v <"$1"
	[ -n "$v" ] || v=-
}

# labelled PREFIX LABEL: the hwmon file of that label, else the first there is
labelled() {
	f=
	for l in "$h/$1"*_label; do
		[ -r "$l" ] && read -r v <"$l" && [ "$v" = "$2" ] && f=${l%_label}_input && return
	done
	for l in "$h/$1"*_input; do
		[ -r "$l" ] && f=$l && return
	done
}

n=0
for d in "$cards"/card*/device; do
	[ -r "$d/mem_info_vram_total" ] || continue
	card=${d%/device} card=${card##*/}
	pci=$(cd -P "$d" && pwd)
	value "$d/mem_info_vram_total" && total=$v
	value "$d/unique_id" && id=$v
	value "$d/product_name" && name=$v
	h= power= limit=-
	for h in "$d"/hwmon/hwmon*; do
		[ -d "$h" ] && break
	done
	for f in "$h/power1_average" "$h/power1_input"; do
		[ -r "$f" ] && power=$f && break
	done
	value "$h/power1_cap" && limit=$v
	labelled temp junction
	temp=$f
	labelled freq sclk
	clock=$f
	labelled freq mclk
	mclock=$f
	[ "$mclock" = "$clock" ] && mclock=
	n=$((n + 1))
	eval "d$n=\$d c$n=\$card p$n=\$power t$n=\$temp f$n=\$clock m$n=\$mclock"
	printf 'device %s %s %s %s %s %s\n' "$card" "${pci##*/}" "$total" "$limit" "$id" "$name" || exit 0
done
[ "$n" -gt 0 ] || {
	echo "none $cards"
	exit 0
}

while :; do
	i=0 text=
	while [ "$i" -lt "$n" ]; do
		i=$((i + 1))
		eval "d=\$d$i card=\$c$i power=\$p$i temp=\$t$i clock=\$f$i mclock=\$m$i"
		line=$card
		for f in "$d/mem_info_vram_used" "$d/gpu_busy_percent" "$d/mem_busy_percent" "$power" "$temp" "$clock" "$mclock"; do
			value "$f"
			line="$line $v"
		done
		text="$text$line
"
	done
	printf '%send\n' "$text" || exit 0
	pace
done
