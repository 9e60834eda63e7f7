// Where cores are few, a thread that polls may have got the core of the one process that works for
// it, and nothing parts them: both are always ready to run, and so is whoever has the other core.
#pragma once

namespace hca {

// If the calling thread may run elsewhere than on `cpu`, it leaves, until the kernel moves it
// again; its affinity is afterwards what it was. Returns the CPU where it went, -1 if it stayed.
int step_aside(int cpu);

}  // namespace hca
