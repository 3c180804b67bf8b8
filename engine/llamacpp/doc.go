// Package llamacpp measures llama.cpp, in two ways.
//
// [Bench] runs llama-bench, the program of llama.cpp itself: prompts and
// generation at given contexts, one sequence at a time, on any device that the
// build knows. It needs nothing but the program:
//
//	llmprof profile step model.gguf --engine llama-bench
//
// [Node] runs llama.cpp inside a Node.js process, through node-llama-cpp, whose
// prebuilt binaries npm installs. It computes any number of sequences in one
// step and can time by the processor time of the process, which stays true on a
// busy machine:
//
//	npm install --omit=optional --ignore-scripts node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1
//
// LLMPROF_NODE_LLAMA_CPP names the folder whose node_modules hold it; without
// it the working folder is tried, then the folder of "make engines".
//
// Both measure a GGUF file as it is, with its own weights. A decode point
// stands for output − 1 single steps and is taken at their mean context.
//
// llama-bench loads the model with each process, so a few tasks share one; more
// would be lost when a run is stopped. A task that fails is followed by the
// shortest test there is: where that fails too, the fault is not the task's and
// the session ends.
//
// What a deployment asks for and llama.cpp would not do is refused before the
// start; the profile's deployment is what really ran.
package llamacpp
