package sglang_test

import (
	"testing"

	"github.com/llmprof/llmprof/sim/sglang"
)

func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		why, release string
		machine      sglang.Machine
		chunk        int
		fraction     float64
	}{
		{"an 80 GiB H100, as its driver reports it", "0.5.5", sglang.Machine{MemoryMiB: 81559}, 8192, 0.835},
		{"58 sizes of prefill graphs are reserved for from 0.5.10 on", "0.5.10", sglang.Machine{MemoryMiB: 81559}, 8192, 0.83},
		{"latent models reserve more, whatever the sizes", "0.5.10", sglang.Machine{MemoryMiB: 81559, Latent: true}, 8192, 0.816},
		{"four devices capture larger batches", "0.5.5", sglang.Machine{MemoryMiB: 81559, TensorParallel: 4}, 8192, 0.824},
		{"a small device", "0.5.5", sglang.Machine{MemoryMiB: 16 << 10}, 2048, 0.772},
		{"24 GiB before the newest", "0.5.16", sglang.Machine{MemoryMiB: 24 << 10}, 2048, 0.833},
		{"24 GiB in the newest", "0.5.23", sglang.Machine{MemoryMiB: 24 << 10}, 4096, 0.704},
		{"just above 60 GiB counts as large", "0.5.5", sglang.Machine{MemoryMiB: 61441, TensorParallel: 1}, 8192, 0.781},
		{"180 GiB", "0.5.5", sglang.Machine{MemoryMiB: 183359}, 16384, 0.857},
		{"no device", "0.5.5", sglang.Machine{}, 4096, 0.88},
		{"no device, newest", "", sglang.Machine{}, 4096, 0.95},
		{"0.4.1 goes by devices", "0.4.1", sglang.Machine{MemoryMiB: 81559, TensorParallel: 8}, 8192, 0.81},
		{"0.4.1 cuts small devices short", "0.4.1", sglang.Machine{MemoryMiB: 24 << 10}, 2048, 0.88},
		{"0.4.7 on a device of 141 GiB", "0.4.7", sglang.Machine{MemoryMiB: 143771}, 8192, 0.872},
		{"0.4.7 above 180,000 MiB", "0.4.7", sglang.Machine{MemoryMiB: 183359}, 16384, 0.79},
	} {
		t.Run(c.why, func(t *testing.T) {
			d, err := sglang.DefaultsOf(c.release, c.machine)
			if err != nil {
				t.Fatal(err)
			}
			if d.Chunk != c.chunk || round(d.MemoryFraction) != c.fraction {
				t.Errorf("chunk %d and fraction %.4f, want %d and %g", d.Chunk, d.MemoryFraction, c.chunk, c.fraction)
			}
			if lpm := d.Policy == sglang.LPM; lpm != (c.release == "0.4.1") || d.MaxPrefill != 16384 || d.Page != 1 {
				t.Errorf("other defaults %+v", d)
			}
		})
	}
	if _, err := sglang.DefaultsOf("1.0.0", sglang.Machine{}); err == nil {
		t.Error("an unknown release has defaults")
	}
	if _, err := sglang.DefaultsOf("0.5.5", sglang.Machine{MemoryMiB: 512}); err == nil {
		t.Error("a device without room has defaults")
	}
}

// round rounds to three digits, as the newer releases do themselves.
func round(share float64) float64 { return float64(int(share*1000+0.5)) / 1000 }

func TestSeatsAndPool(t *testing.T) {
	for _, c := range []struct {
		why, release        string
		pool, context, want int
	}{
		{"a long context gives the least", "0.5.5", 400_000, 131_072, 2048},
		{"a short one the most", "0.5.5", 400_000, 2048, 4096},
		{"between them, 512 a context", "0.5.5", 80_000, 16_384, 2500},
		{"newer ones want two tokens a seat", "0.5.10", 3000, 2048, 1500},
	} {
		if got, err := sglang.DefaultSeats(c.release, c.pool, c.context); err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", c.why, got, err, c.want)
		}
	}
	// 80 GB free before and 64 GB after the model: 64 - 80 x 0.165 = 50.8 GB.
	n, err := sglang.PoolOf(80e9, 64e9, 0.835, 131_072, 16, 0)
	if err != nil || n != 387_568 {
		t.Errorf("pool of %d tokens, %v; want 387,568", n, err)
	}
	if n, err := sglang.PoolOf(80e9, 64e9, 0.835, 131_072, 16, 1000); err != nil || n != 992 {
		t.Errorf("capped pool of %d tokens, %v; want 992", n, err)
	}
	if _, err := sglang.PoolOf(80e9, 8e9, 0.835, 131_072, 16, 0); err == nil {
		t.Error("a pool without memory")
	}
}
