// Matrix products by cuBLASLt, with the algorithm that was chosen for them when the plan started.
#include "runtime/engine/device/cuda/cuda_device.h"
#include "runtime/engine/device/cuda/product.h"
#include <fmt/format.h>

namespace cleave::runtime::cuda {
namespace {

class Matmul final : public PreparedCommand {
public:
  Matmul(CudaDevice &device, int lane) : device(device), blas(*device.gpu().blas), stream(device.stream(lane)) {}

  Status run() override {
    for (const Product::Call &call : calls)
      if (int error = description.run(device.gpu().blasHandle, choice.algorithm, call.a, call.b, call.d,
                                      device.workspaceMemory().address(), choice.workspaceBytes, stream))
        return blasStatus(blas, error, "a matrix product does not start");
    return Status::ok();
  }

  Status build(const plan::Contract &c);

private:
  CudaDevice &device;
  const CublasLt &blas;
  Stream stream;
  ProductDescription description;
  ProductChoice choice;
  std::vector<Product::Call> calls; // addresses
};

Status Matmul::build(const plan::Contract &c) {
  CLEAVE_ASSIGN_OR_RETURN(Product product, productOf(c, device.gpu().tf32));
  CLEAVE_RETURN_IF_ERROR(description.make(blas, product, product.vector ? device.at(*product.vector) : 0,
                                          product.auxLeading ? device.at(c.pre_activation()) : 0));
  auto known = device.gpu().products.find(product.key());
  if (known != device.gpu().products.end()) {
    choice = known->second;
  } else { // of a process whose GPU is another than the first's, which chose
    CLEAVE_ASSIGN_OR_RETURN(std::vector<MatmulHeuristic> found, description.algorithms(device.gpu().blasHandle, 1));
    if (found.empty())
      return runError(
          fmt::format("cuBLASLt knows no algorithm for the matrix product{}",
                      product.epilogue ? " with what it ends with; compile with --set epilogues=written" : ""));
    choice = {found.front().algorithm, found.front().workspaceBytes};
  }
  device.needWorkspace(choice.workspaceBytes);
  Address first = device.at(product.turned ? c.lhs() : c.rhs()), second = device.at(product.turned ? c.rhs() : c.lhs()),
          out = device.at(c.out());
  for (const Product::Call &call : product.calls)
    calls.push_back({static_cast<int64_t>(first) + call.a, static_cast<int64_t>(second) + call.b,
                     static_cast<int64_t>(out) + call.d});
  return Status::ok();
}

} // namespace

Result<Prepared> prepareContract(const plan::Contract &command, CudaDevice &device, int lane) {
  CLEAVE_RETURN_IF_ERROR(device.gpu().needBlas());
  auto matmul = std::make_unique<Matmul>(device, lane);
  CLEAVE_RETURN_IF_ERROR(matmul->build(command));
  return Prepared(std::move(matmul));
}

} // namespace cleave::runtime::cuda
