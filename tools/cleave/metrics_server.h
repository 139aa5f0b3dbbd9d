// Serves the metrics of a run to Prometheus: GET http://127.0.0.1:9100/metrics gives the latest step's.
//
//   MetricsServer server;
//   Status s = server.start(9100);     // error: the port is in use
//   server.tell(metrics);              // after every step: keeps them, and formats them when they are asked for
//
// It ends with its object. A client has ten seconds for a request.
#pragma once
#include "runtime/train/trainer.h"
#include <mutex>

struct mg_context;
struct mg_connection;

namespace cleave::tool {

class MetricsServer {
public:
  MetricsServer() = default;
  MetricsServer(const MetricsServer &) = delete;
  ~MetricsServer();
  Status start(int port);
  void tell(const runtime::StepMetrics &step);

private:
  static int answer(mg_connection *client, void *server);
  mg_context *running = nullptr;
  std::mutex lock;
  runtime::StepMetrics latest;
};

} // namespace cleave::tool
