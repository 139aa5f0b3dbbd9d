// The reach of a hand-made plan's kernels, as the compiler would declare it: read off their launches.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/plan/code_digest.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <map>
#include <vector>

namespace cleave::runtime::test {

// Each buffer's elements: so many a unit of the extent, where all launches agree on that; else the fewest.
inline void describeKernels(plan::Plan &plan) {
  std::map<int32_t, std::vector<const plan::Launch *>> launches;
  for (const plan::Program &program : plan.programs())
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::Command &command : fragment.commands()) {
        if (command.has_launch()) launches[command.launch().kernel()].push_back(&command.launch());
        for (const plan::Launch &part : command.launch_group().parts()) launches[part.kernel()].push_back(&part);
        for (const plan::Launch &launch : command.launches()) launches[launch.kernel()].push_back(&launch);
      }
  for (auto &[number, all] : launches) {
    plan::Kernel &kernel = *plan.mutable_kernels(number);
    kernel.clear_buffers();
    kernel.set_grain(all.front()->grain());
    kernel.set_extent(all.front()->extent());
    for (int i = 0; i < kernel.num_buffers(); ++i) {
      auto elements = [&](const plan::Launch *launch) { return elementCount(launch->buffers(i).shape()); };
      auto extent = [](const plan::Launch *launch) { return std::max<int64_t>(1, launch->extent()); };
      const int64_t each = elements(all.front()) / extent(all.front());
      const bool grows =
          std::ranges::all_of(all, [&](const plan::Launch *one) { return elements(one) == each * extent(one); });
      plan::KernelBuffer &buffer = *kernel.add_buffers();
      buffer.set_element_bytes(static_cast<int32_t>(byteSize(all.front()->buffers(i).dtype())));
      buffer.set_elements(grows ? each : elements(std::ranges::min(all, {}, elements)));
      buffer.set_per(grows ? 1 : 0);
      if (grows) kernel.clear_extent();
    }
  }
  plan.set_code_digest(codeDigest(plan));
}

} // namespace cleave::runtime::test
