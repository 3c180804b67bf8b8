package prom_test

import (
	"testing"

	"github.com/llmprof/llmprof/profile"
)

func TestKVCapacity(t *testing.T) {
	const info = "# TYPE vllm:cache_config_info gauge\n"
	for _, c := range []struct {
		why, text string
		want      profile.KVCapacity // Origin "" is not told
	}{
		{
			"vLLM says its blocks", info + `vllm:cache_config_info{block_size="128",num_gpu_blocks="4096",kv_cache_memory_bytes="1073741824"} 1` + "\n",
			profile.KVCapacity{Blocks: 4096, BlockSize: 128, Tokens: 524288, Bytes: 1 << 30, Origin: "m: vllm:cache_config_info"},
		},
		{
			"the smallest engine that says it", info + `vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="None"} 1` + "\n" +
				`vllm:cache_config_info{engine="1",block_size="16",num_gpu_blocks="101"} 1` + "\n" + `vllm:cache_config_info{engine="2",block_size="16",num_gpu_blocks="100"} 1` + "\n",
			profile.KVCapacity{Blocks: 100, BlockSize: 16, Tokens: 1600, Origin: "m: vllm:cache_config_info"},
		},
		{
			"SGLang says its tokens once a rank", "# TYPE sglang:max_total_num_tokens gauge\n" +
				`sglang:max_total_num_tokens{dp_rank="0",tp_rank="0",pp_rank="0"} 5000` + "\n" + `sglang:max_total_num_tokens{dp_rank="0",tp_rank="1",pp_rank="0"} 5000` + "\n" +
				`sglang:max_total_num_tokens{dp_rank="1",tp_rank="0",pp_rank="0"} 4000` + "\n",
			profile.KVCapacity{Tokens: 4000, Origin: "m: sglang:max_total_num_tokens"},
		},
		{"nobody says it", "# TYPE x gauge\nx 1\n", profile.KVCapacity{}},
	} {
		got, ok := parse(t, c.text).KVCapacity("m")
		if got != c.want || ok != (c.want.Origin != "") {
			t.Errorf("%s: %+v, %v; want %+v", c.why, got, ok, c.want)
		}
	}
}
