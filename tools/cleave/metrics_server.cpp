#include "tools/cleave/metrics_server.h"
#include "runtime/train/prometheus_file.h"
#include <civetweb.h>
#include <fmt/format.h>
#include <string>

namespace cleave::tool {

MetricsServer::~MetricsServer() {
  if (running) mg_stop(running);
}

Status MetricsServer::start(int port) {
  const std::string address = fmt::format("127.0.0.1:{}", port);
  const char *options[] = {"listening_ports",    address.c_str(), "num_threads", "2",
                           "request_timeout_ms", "10000",         nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = [](const mg_connection *, const char *) { return 1; }; // said by the error
  char text[256] = {};
  mg_init_data init{&callbacks, this, options};
  mg_error_data error{};
  error.text = text, error.text_buffer_size = sizeof text;
  running = mg_start2(&init, &error);
  if (!running) return inputError(fmt::format("--prometheus {}: {} cannot be listened at: {}", port, address, text));
  mg_set_request_handler(running, "/metrics$", answer, this);
  return Status::ok();
}

void MetricsServer::tell(const runtime::StepMetrics &step) {
  const std::lock_guard guard(lock);
  runtime::takeLatest(latest, step);
}

int MetricsServer::answer(mg_connection *client, void *server) {
  auto *self = static_cast<MetricsServer *>(server);
  runtime::StepMetrics now;
  {
    const std::lock_guard guard(self->lock);
    now = self->latest;
  }
  const std::string text = runtime::prometheusText(now);
  constexpr int ok = 200;
  // In one write: at the end of the run a client gets all of it or nothing.
  const std::string response =
      fmt::format("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                  "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                  text.size(), text);
  mg_write(client, response.data(), response.size());
  return ok;
}

} // namespace cleave::tool
