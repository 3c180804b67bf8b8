/* An imitation of libnvidia-ml for tests, after its documented interface. Two
   cards: the first answers everything, the second is divided into two MIG
   instances, has no power and hides the memory of its processes. With
   -DOLD it lacks the functions that came late; with -DBROKEN it does not
   start; with -DLOST the first card has failed. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct fake { int number; const char *name, *uuid; } fake;
static fake fakes[] = {
	{0, "NVIDIA H200", "GPU-aaaa"}, {1, "NVIDIA A100", "GPU-bbbb"},
	{2, "NVIDIA A100 MIG 3g.20gb", "MIG-1111"}, {3, "NVIDIA A100 MIG 2g.10gb", "MIG-2222"},
};
static uint64_t reads;

#ifdef BROKEN
int nvmlInit_v2(void) { return 9; }
#else
int nvmlInit_v2(void) { return 0; }
#endif
const char *nvmlErrorString(int s) { return s == 9 ? "Driver Not Loaded" : s == 15 ? "GPU is lost" : "Not Supported"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, fake **d) {
#ifdef LOST
	if (i == 0) return 15;
#endif
	if (i > 1) return 2;
	*d = &fakes[i];
	return 0;
}
static int text(const char *from, char *to, unsigned room) {
	if (strlen(from) + 1 > room) return 7;
	strcpy(to, from);
	return 0;
}
int nvmlDeviceGetName(fake *d, char *to, unsigned room) { return text(d->name, to, room); }
int nvmlDeviceGetUUID(fake *d, char *to, unsigned room) { return text(d->uuid, to, room); }
typedef struct { uint64_t total, free, used; } memory1;
int nvmlDeviceGetMemoryInfo(fake *d, memory1 *m) {
	m->total = 150754820096ull >> d->number;
	m->used = 700 + ++reads;
	m->free = m->total - m->used;
	return 0;
}
#ifndef OLD
typedef struct { unsigned version; uint64_t total, reserved, free, used; } memory2;
int nvmlDeviceGetMemoryInfo_v2(fake *d, memory2 *m) {
	if (m->version != (sizeof *m | 2u << 24)) return 25;
	m->total = 150754820096ull >> d->number;
	m->reserved = 600;
	m->used = 100 + d->number;
	m->free = m->total - m->used - m->reserved;
	return 0;
}
typedef struct { unsigned pid; uint64_t used; unsigned gpu, compute; } process;
int nvmlDeviceGetComputeRunningProcesses_v3(fake *d, unsigned *n, process *list) {
	unsigned have = d->number == 0 ? 100 : d->number, room = *n;
	*n = have;
	if (have > room) return 7;
	for (unsigned i = 0; i < have; i++)
		list[i] = (process){1000 + i, d->number == 1 ? ~0ull : 5000000000ull, 0xffffffffu, 0xffffffffu};
	return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(fake *d, unsigned *n) { *n = d->number == 1 ? 7 : 0; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(fake *d, unsigned i, fake **out) {
	if (d->number != 1 || (i != 0 && i != 3)) return 6;
	*out = &fakes[i == 0 ? 2 : 3];
	return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(fake *d, unsigned *mw) { *mw = 700000; return d->number ? 3 : 0; }
#endif
int nvmlDeviceGetUtilizationRates(fake *d, unsigned *u) { u[0] = 97; u[1] = 42; return d->number ? 3 : 0; }
int nvmlDeviceGetPowerUsage(fake *d, unsigned *mw) { *mw = 412500; return d->number ? 3 : 0; }
int nvmlDeviceGetTemperature(fake *d, int sensor, unsigned *t) { *t = 61; return sensor || d->number > 1 ? 3 : 0; }
int nvmlDeviceGetClockInfo(fake *d, int type, unsigned *mhz) {
	*mhz = type == 1 ? 1980 : type == 2 ? 2619 : 0;
	return d->number > 1 ? 3 : 0;
}
