// What the engines for networks share: memory, panels, blocks of rows.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "core/arrays.hpp"
#include "core/panels.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"
#include "pydirect/quadratic/network.hpp"

namespace pydirect::quadratic {

// Zeros, aligned to cache lines.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Index size)
      : data_(static_cast<double*>(::operator new[](size * sizeof(double), std::align_val_t{64}))), size_(size) {
    clear();
  }
  double* data() { return data_.get(); }
  const double* data() const { return data_.get(); }
  Index size() const { return size_; }
  auto array() { return pydirect::array(data(), size_); }
  auto array() const { return pydirect::array(data(), size_); }
  double& operator[](Index k) { return data_[k]; }
  double operator[](Index k) const { return data_[k]; }
  void clear() { array().setZero(); }

 private:
  struct Free {
    void operator()(double* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<double[], Free> data_;
  Index size_ = 0;
};

// A matrix in panels; `stride` is from one to the next.
struct Panels {
  double* data;
  Index stride;
  double* panel(Index j) const { return data + j * stride; }
};

inline double sum_of_lanes(const double* lanes) {
  double total = 0.0;
  for (Index q = 0; q < kLanes; ++q) total += lanes[q];
  return total;
}

// c (+)= a b, panel by panel.
inline void multiply(Index n_rows, Index n_inner, Index n_column_panels, Panels a, Panels b, Panels c,
                     bool accumulate = false) {
  kernels().products.panels({n_rows, n_inner, n_column_panels * kLanes, a.data, kLanes, 1, a.stride, b.data, kLanes,
                             b.stride, c.data, kLanes, c.stride, accumulate, false});
}

inline Panels whole(const Buffer& buffer, Index n_rows, Index offset = 0) {
  return {const_cast<double*>(buffer.data()) + offset, n_rows * kLanes};
}

// Consecutive rows of data as the kernels want them, eight side by side; rows that fill up the last panel have weight
// zero. The bias is one more input.
struct RowBlock {
  RowBlock(Index n_inputs, bool bias, Index most_rows, Index n_powers, bool transposed);
  void load(const double* x_rows, const double* y_rows, const double* weight_rows, Index n);

  Panels power(Index r) { return {x.data() + (r - 1) * x_stride, inputs * kLanes}; }
  Panels transposed_power(Index r) { return {xt.data() + (r - 1) * xt_stride, panels * kLanes * kLanes}; }

  Index columns, inputs;  // without and with the bias
  Index powers;
  Index rows = 0, panels = 0;
  Index x_stride, xt_stride;
  Buffer x, xt;  // powers of x in panels of rows and in panels of inputs
  Buffer y, weight, mean, variance;
};

// Rows are worked through in blocks, blocks in groups: a group has its own sums, which are added in order. Large sums
// leave fewer groups; the number of threads has no say, so that results have the same bits for all.
inline constexpr Index kRowsPerGroup = 512;
inline constexpr Index kMostGroups = 16;
inline constexpr double kMostBytesOfSums = 512.0 * 1024 * 1024;  // unless two groups take more

inline Index rows_per_group(Index n_rows, double sums_size) {
  const double room = kMostBytesOfSums / (sizeof(double) * sums_size);
  const Index most = Index(std::clamp(room, 2.0, double(kMostGroups)));
  const Index even = (n_rows + most - 1) / most;
  return (even + kRowsPerGroup - 1) / kRowsPerGroup * kRowsPerGroup;
}

inline Index count_groups(Index n_rows, double sums_size) {
  const Index per_group = rows_per_group(n_rows, sums_size);
  return (n_rows + per_group - 1) / per_group;
}

// Doubles that an engine by rows holds: for itself, for the sums of a group, and for a worker.
struct DatumMemory {
  double own, sums, worker;
};
DatumMemory one_layer_memory(const NetworkShape& shape);
DatumMemory two_layer_memory(const NetworkShape& shape);
double tensor_memory(const NetworkShape& shape, Index n_workers);

// Doubles of the powers of a block's rows, in panels of rows and in panels of inputs.
inline double block_memory(const NetworkShape& shape, Index n_rows, Index n_powers) {
  const Index inputs = shape.fan_in(0);
  return double(n_powers) * double(n_rows) * double(inputs + padded(inputs));
}

inline Index count_workers(Index count, int n_threads) {
  return std::max<Index>(1, std::min<Index>(count, n_threads));
}

// Runs body(worker, k) for every k below count; a worker runs on one thread at a time and may own memory.
template <class Body>
void for_workers(Index count, int n_threads, const Body& body) {
  const Index workers = count_workers(count, n_threads);
  for_chunks(workers, 1, n_threads, [&](Index worker, Index) {
    for (Index k = worker; k < count; k += workers) body(worker, k);
  });
}

// R and its gradient by passing over the data. A network type has
//   Network(shape, data), n_powers(), sums_size()
//   kRowsPerBlock                  divides kRowsPerGroup
//   prepare(moments)               what depends on the weights alone
//   Scratch(network, rows)         memory of one worker
//   evaluate(block, scratch, sums) adds a block's share; sums[0..7] are the lanes of R; `gradient` says how much
//   predict(block, scratch)        sets the block's mean and variance
//   finish(sums, gradient)         R; the chain from the sums to the moments when gradient is not null
template <class Network>
class DatumEngine final : public NetworkEngine {
 public:
  DatumEngine(const NetworkShape& shape, const NetworkData& data) : shape_(shape), data_(data), network_(shape, data) {}

  double evaluate(const double* moments, double* gradient, int n_threads) override {
    network_.prepare(moments);
    const double size = double(network_.sums_size());
    const Index per_group = rows_per_group(data_.n_rows, size), n_groups = count_groups(data_.n_rows, size);
    reserve_workers(n_groups, n_threads);
    while (Index(sums_.size()) < n_groups) sums_.emplace_back(network_.sums_size());
    const Index d = shape_.n_inputs;
    for_workers(n_groups, n_threads, [&](Index worker, Index group) {
      Worker& w = *workers_[worker];
      Buffer& sums = sums_[group];
      sums.clear();
      const Index last = std::min(data_.n_rows, (group + 1) * per_group);
      for (Index begin = group * per_group; begin < last; begin += Network::kRowsPerBlock) {
        w.block.load(data_.x + begin * d, data_.y + begin, data_.weight ? data_.weight + begin : nullptr,
                     std::min(Network::kRowsPerBlock, last - begin));
        network_.evaluate(w.block, w.scratch, sums.data(), gradient != nullptr);
      }
    });
    for (Index group = 1; group < n_groups; ++group)
      kernels().rows<double>().add(sums_[0].size(), sums_[group].data(), sums_[0].data());
    return network_.finish(sums_[0], gradient);
  }

  void predict(const double* moments, Index n_rows, const double* x, double* mean, double* variance,
               int n_threads) override {
    network_.prepare(moments);
    const Index n_blocks = (n_rows + Network::kRowsPerBlock - 1) / Network::kRowsPerBlock;
    reserve_workers(n_blocks, n_threads);
    for_workers(n_blocks, n_threads, [&](Index worker, Index k) {
      Worker& w = *workers_[worker];
      const Index begin = k * Network::kRowsPerBlock, n = std::min(Network::kRowsPerBlock, n_rows - begin);
      w.block.load(x + begin * shape_.n_inputs, nullptr, nullptr, n);
      network_.predict(w.block, w.scratch);
      std::copy(w.block.mean.data(), w.block.mean.data() + n, mean + begin);
      if (variance != nullptr) std::copy(w.block.variance.data(), w.block.variance.data() + n, variance + begin);
    });
  }

 private:
  struct Worker {
    Worker(const NetworkShape& shape, const Network& network, Index rows)
        : block(shape.n_inputs, shape.bias, rows, network.n_powers(), true), scratch(network, rows) {}
    RowBlock block;
    typename Network::Scratch scratch;
  };

  void reserve_workers(Index count, int n_threads) {
    while (Index(workers_.size()) < count_workers(count, n_threads))
      workers_.push_back(std::make_unique<Worker>(shape_, network_, Network::kRowsPerBlock));
  }

  NetworkShape shape_;
  NetworkData data_;
  Network network_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Buffer> sums_;
};

// Σ_k e_k Σ_l ω (4 K_3 K_1 + K_4) = Σ_k e_k (4 κ_3ᵀ T_31 μ + κ_4ᵀ T_4), the part of one hidden layer that costs nothing
// per row. Weights are in panels of inputs, [⌈inputs/8⌉][units][8], their moments at a distance of `stride`.
class ThirdAndFourthCumulants {
 public:
  ThirdAndFourthCumulants(Index n_units, Index n_inputs);
  Buffer t31, t31_transposed, t4;  // in panels; (padded inputs,)

  // Adds to the gradient in the cumulants, in g_p and g_vp (n_units,).
  double evaluate(const double* cumulant, Index stride, const double* p, const double* vp, double* gradient,
                  double* g_p, double* g_vp);

 private:
  Index n_units_, n_inputs_;
  Buffer forward_, backward_;
};

std::unique_ptr<NetworkEngine> make_tensor_engine(const NetworkShape& shape, const NetworkData& data);
std::unique_ptr<NetworkEngine> make_one_layer_engine(const NetworkShape& shape, const NetworkData& data);
std::unique_ptr<NetworkEngine> make_two_layer_engine(const NetworkShape& shape, const NetworkData& data);

}  // namespace pydirect::quadratic
