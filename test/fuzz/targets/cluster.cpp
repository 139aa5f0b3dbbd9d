// Clusters: read or refused with a word; what is read writes itself as YAML that is read as the same.
#include "compiler/cluster/cluster.h"
#include "test/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace cleave;
  auto cluster = planner::parseClusterYaml(fuzz::textOf(data, size), "cluster");
  if (!cluster) return fuzz::refused(cluster.status());
  const std::string text = cluster->yaml();
  auto again = planner::parseClusterYaml(text, "cluster");
  fuzz::require(bool(again), "refuses its own text: " + again.status().message() + "\n" + text);
  fuzz::require(again->numDevices() == cluster->numDevices() && again->device.kind == cluster->device.kind,
                "its own text is another cluster:\n" + text);
  (void)cluster->device.cacheBytes();
  (void)cluster->device.meanSecondsPerByte(1e9, 1);
  return 0;
}
