// Inner products of sums of Kronecker terms, and their entries.
#include <algorithm>
#include <utility>

#include "kernels/kernel_table.hpp"
#include "pydirect/kron.hpp"
#include "pydirect/parallel.hpp"
#include "scaled.hpp"

namespace pydirect {
namespace {

using namespace kron;

constexpr Index kColumnsPerChunk = 512, kTermsPerChunk = 256;

// fᵀg of two factors; null is all ones.
Scaled dot(const double* f, const double* g, Index n, bool moderate) {
  if (f == nullptr && g == nullptr) return Scaled::of(double(n));
  if (f == nullptr) std::swap(f, g);
  if (moderate) {  // no product can leave the range of double, nor become subnormal
    double sum = 0.0;
    for (Index k = 0; k < n; ++k) sum += g == nullptr ? f[k] : f[k] * g[k];
    return Scaled::of(sum);
  }
  Scaled sum{0.0, 0};
  for (Index k = 0; k < n; ++k) add_to(sum, g == nullptr ? Scaled::of(f[k]) : Scaled::of(f[k]) * Scaled::of(g[k]));
  return sum;
}

// Factors of a sum as they stand at their positions, numbered from one at each; zero is all ones.
struct LocalFactors {
  std::vector<std::int32_t> number;                // of every factor of every term, from the first term's
  std::vector<std::vector<std::int32_t>> indices;  // per position: of the factors, in the table

  explicit LocalFactors(const KronView& sum)
      : number(sum.start[sum.n_terms] - sum.start[0]), indices(sum.n_positions) {
    std::unordered_map<std::uint64_t, std::int32_t> known;
    for (Index k = sum.start[0]; k < sum.start[sum.n_terms]; ++k) {
      auto& here = indices[sum.position[k]];
      std::int32_t& own = number[k - sum.start[0]];
      own = 1;
      if (!here.empty() && here.front() == sum.index[k]) continue;  // most positions have one factor only
      if (!here.empty()) {
        const std::uint64_t key = std::uint64_t(sum.position[k]) << 32 | std::uint32_t(sum.index[k]);
        const auto [found, is_new] = known.emplace(key, std::int32_t(here.size()) + 1);
        own = found->second;
        if (!is_new) continue;
      }
      here.push_back(sum.index[k]);
    }
  }
};

std::vector<char> moderate_factors(const KronView& sum) {
  std::vector<char> moderate(sum.n_factors);
  for (Index f = 0; f < sum.n_factors; ++f)
    moderate[f] = range_of(sum.value + sum.offset[f], sum.offset[f + 1] - sum.offset[f]).within(400);
  return moderate;
}

// Inner products of all pairs of factors that can meet at a position.
class DotTables {
 public:
  DotTables(const KronView& a, const LocalFactors& in_a, const std::vector<char>& of_a, const KronView& b,
            const LocalFactors& in_b, const std::vector<char>& of_b)
      : first_(a.n_positions), width_(a.n_positions) {
    for (Index p = 0; p < a.n_positions; ++p) {
      first_[p] = Index(dots_.size());
      width_[p] = Index(in_b.indices[p].size()) + 1;
      for (Index i = 0; i <= Index(in_a.indices[p].size()); ++i)
        for (Index j = 0; j < width_[p]; ++j) {
          const std::int32_t f = i > 0 ? in_a.indices[p][i - 1] : kUnit, g = j > 0 ? in_b.indices[p][j - 1] : kUnit;
          dots_.push_back(dot(f == kUnit ? nullptr : a.value + a.offset[f],
                              g == kUnit ? nullptr : b.value + b.offset[g], a.size[p],
                              (f == kUnit || of_a[f]) && (g == kUnit || of_b[g])));
        }
    }
  }
  const Scaled& operator()(Index p, Index i, Index j) const { return dots_[first_[p] + i * width_[p] + j]; }

 private:
  std::vector<Index> first_, width_;
  std::vector<Scaled> dots_;
};

KronView terms_of(const KronView& sum, Index begin, Index end) {
  KronView part = sum;
  part.n_terms = end - begin;
  part.start += begin;
  part.coefficient += begin * sum.n_data;
  part.exponent += begin;
  return part;
}

// Where to cut the denser sum so that a block's tables of inner products have at most max_dots entries, unless one term
// alone needs more: as many as the sparser sum has factors, at most twice over.
std::vector<Index> blocks_of_terms(const KronView& dense, const LocalFactors& in_dense, const LocalFactors& in_sparse,
                                   Index max_dots) {
  std::vector<Index> first(dense.n_positions + 1, 0), cuts{0};
  Index with_ones = 0;
  for (Index p = 0; p < dense.n_positions; ++p) {
    first[p + 1] = first[p] + Index(in_dense.indices[p].size());
    with_ones += Index(in_sparse.indices[p].size()) + 1;
  }
  std::vector<Index> block_of(first.back(), -1);  // the last in which a factor was seen at its position
  Index count = with_ones;
  const auto cost = [&](Index t) {
    Index sum = 0;
    for (Index k = dense.start[t]; k < dense.start[t + 1]; ++k) {
      const Index p = dense.position[k];
      Index& seen = block_of[first[p] + in_dense.number[k] - 1];
      if (seen != Index(cuts.size())) sum += Index(in_sparse.indices[p].size()) + 1;
      seen = Index(cuts.size());
    }
    return sum;
  };
  for (Index t = 0; t < dense.n_terms; ++t) {
    count += cost(t);
    if (count <= max_dots || t == cuts.back()) continue;
    cuts.push_back(t);
    count = with_ones + cost(t);
  }
  cuts.push_back(dense.n_terms);
  return cuts;
}

// Products over any range of positions by one multiplication and no division, for entries may be zero. At every level
// blocks are halved; products run from the middle of a block to both sides.
class RangeProducts {
 public:
  explicit RangeProducts(Index n) : size_(1) {
    while (size_ < n) size_ *= 2, ++n_levels_;
    levels_.resize(size_ * n_levels_);
  }
  Scaled& leaf(Index p) { return levels_[p]; }

  void build() {
    for (Index d = 1; d < n_levels_; ++d) {
      const Index half = Index{1} << d;
      Scaled* level = levels_.data() + d * size_;
      for (Index middle = half; middle < size_; middle += 2 * half) {
        level[middle - 1] = levels_[middle - 1];
        for (Index p = middle - 2; p >= middle - half; --p) level[p] = levels_[p] * level[p + 1];
        level[middle] = levels_[middle];
        for (Index p = middle + 1; p < middle + half; ++p) level[p] = level[p - 1] * levels_[p];
      }
    }
  }

  Scaled product(Index begin, Index end) const {
    if (begin >= end) return Scaled{};
    if (begin + 1 == end) return levels_[begin];
    Index level = 0;  // the one at which the two ends lie on different sides of a middle
    for (Index differ = begin ^ (end - 1); differ > 1; differ /= 2) ++level;
    return levels_[level * size_ + begin] * levels_[level * size_ + end - 1];
  }

 private:
  Index size_, n_levels_ = 1;
  std::vector<Scaled> levels_;
};

// Σ_t c_tl x_t for every datum. In ordinary numbers, relative to the largest x, where no product can leave their range.
class Combination {
 public:
  explicit Combination(const KronView& sum)
      : sum_(sum), coefficients_(range_of(sum.coefficient, sum.n_terms * sum.n_data)), plain_(sum.n_terms),
        total_(sum.n_data) {}

  // Calls use(l, value) for every datum, in chunks.
  template <class Use>
  void operator()(const std::vector<Scaled>& x, int n_threads, const Use& use) {
    ExponentRange range;
    for (const Scaled& v : x) range.include(v);
    const std::int64_t top = range.empty() ? 0 : range.high;
    const bool plain = range.empty() || (coefficients_.within(450) && range.low - top >= -450);
    if (plain)
      for (Index t = 0; t < sum_.n_terms; ++t)
        plain_[t] = x[t].mantissa == 0.0 ? 0.0 : shifted(x[t].mantissa, x[t].exponent - top);
    const Index n = sum_.n_data;
    for_chunks(n, kColumnsPerChunk, n_threads, [&](Index begin, Index end) {
      if (plain) {
        std::fill(total_.begin() + begin, total_.begin() + end, 0.0);
        kernels().rows<double>().add_transposed(sum_.n_terms, end - begin, sum_.coefficient + begin, n, plain_.data(),
                                        total_.data() + begin);
        for (Index l = begin; l < end; ++l) use(l, Scaled::of(total_[l], top));
        return;
      }
      for (Index l = begin; l < end; ++l) {
        Scaled value{0.0, 0};
        for (Index t = 0; t < sum_.n_terms; ++t) add_to(value, Scaled::of(sum_.coefficient[t * n + l]) * x[t]);
        use(l, value);
      }
    });
  }

 private:
  const KronView& sum_;
  ExponentRange coefficients_;
  std::vector<double> plain_, total_;
};

void store(const std::vector<Scaled>& values, ScaledArray out) {
  for (std::size_t k = 0; k < values.size(); ++k) {
    out.mantissa[k] = values[k].mantissa;
    out.exponent[k] = values[k].mantissa == 0.0 ? 0 : values[k].exponent;
  }
}

}  // namespace

void inner_product(const KronView& a, const KronView& b, ScaledArray out, int n_threads, Index max_dots) {
  // Every term of `dense` costs all positions, every pair of terms only the factors of the sparse one.
  const bool a_is_denser = a.start[a.n_terms] * b.n_terms > b.start[b.n_terms] * a.n_terms;
  const KronView &dense = a_is_denser ? a : b, &sparse = a_is_denser ? b : a;
  const LocalFactors in_dense(dense), in_sparse(sparse);
  const auto of_dense = moderate_factors(dense), of_sparse = moderate_factors(sparse);
  const Index n_positions = dense.n_positions, dense_step = dense.n_data > 1;

  std::vector<Scaled> total(std::max(a.n_data, b.n_data), Scaled{0.0, 0}), overlap(sparse.n_terms);
  std::vector<std::int32_t> local(n_positions);
  RangeProducts products(n_positions);
  Combination combine(sparse);
  const std::vector<Index> blocks = blocks_of_terms(dense, in_dense, in_sparse, max_dots);
  for (std::size_t k = 0; k + 1 < blocks.size(); ++k) {
    const KronView block = terms_of(dense, blocks[k], blocks[k + 1]);
    const LocalFactors in_block(block);
    const DotTables dots(sparse, in_sparse, of_sparse, block, in_block, of_dense);
    for (Index t = 0; t < block.n_terms; ++t) {
      std::fill(local.begin(), local.end(), 0);
      for (Index f = block.start[t]; f < block.start[t + 1]; ++f)
        local[block.position[f]] = in_block.number[f - block.start[0]];
      for (Index p = 0; p < n_positions; ++p) products.leaf(p) = dots(p, 0, local[p]);
      products.build();
      for_chunks(sparse.n_terms, kTermsPerChunk, n_threads, [&](Index begin, Index end) {
        for (Index s = begin; s < end; ++s) {
          Scaled value{1.0, sparse.exponent[s]};
          Index next = 0;
          for (Index f = sparse.start[s]; f < sparse.start[s + 1]; ++f) {
            const Index p = sparse.position[f];
            value = value * products.product(next, p) * dots(p, in_sparse.number[f], local[p]);
            next = p + 1;
          }
          overlap[s] = value * products.product(next, n_positions);
        }
      });
      const double* c = block.coefficient + t * block.n_data;
      const std::int64_t exponent = block.exponent[t];
      combine(overlap, n_threads, [&](Index l, const Scaled& value) {
        if (sparse.n_data == 1)
          for (Index j = 0; j < Index(total.size()); ++j)
            add_to(total[j], value * Scaled::of(c[j * dense_step], exponent));
        else
          add_to(total[l], value * Scaled::of(c[l * dense_step], exponent));
      });
    }
  }
  store(total, out);
}

void entries_at(const KronView& sum, Index n_points, const std::int64_t* points, ScaledArray out, int n_threads) {
  std::vector<Scaled> value(sum.n_terms), total(n_points * sum.n_data);
  Combination combine(sum);
  for (Index i = 0; i < n_points; ++i) {
    const std::int64_t* point = points + i * sum.n_positions;
    for (Index t = 0; t < sum.n_terms; ++t) {
      value[t] = Scaled{1.0, sum.exponent[t]};
      for (Index k = sum.start[t]; k < sum.start[t + 1]; ++k)
        value[t] = value[t] * Scaled::of(sum.value[sum.offset[sum.index[k]] + point[sum.position[k]]]);
    }
    combine(value, n_threads, [&](Index l, const Scaled& v) { total[i * sum.n_data + l] = v; });
  }
  store(total, out);
}

}  // namespace pydirect
