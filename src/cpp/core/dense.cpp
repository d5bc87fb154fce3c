#include "pydirect/dense.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kInner = 256;    // of the inner axis at once: a panel of columns stays in the first-level cache. In the bits
constexpr Index kRows = 96;      // rows of a block, a multiple of every tile's height: in the second-level cache
constexpr Index kColumns = 4096; // columns that are packed at once
constexpr Index kFewest = 4;     // vectors; fewer are not worth packing a matrix for

// Uninitialised, aligned to a vector.
template <class T>
class Buffer {
 public:
  explicit Buffer(Index n) : memory_(new T[n + 64 / sizeof(T)]) {}
  T* data() const {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
    return memory_.get() + (64 - address % 64) % 64 / sizeof(T);
  }

 private:
  std::unique_ptr<T[]> memory_;
};

template <class T>
struct Shape {
  Index height, width;
  Shape() { kernels().tiles<T>().shape(&height, &width); }
  Index panels(Index n_columns) const { return (n_columns + width - 1) / width; }
  Index padded_rows(Index n) const { return (n + height - 1) / height * height; }
};

// Calls task(begin of rows, end, begin of panels, end) for blocks of the product, as many as keep all threads busy.
template <class T, class Task>
void for_blocks(Index n_rows, Index n_panels, int n_threads, const Task& task) {
  const Index n_blocks = (n_rows + kRows - 1) / kRows;
  const Index wanted = n_threads == 1 ? 1 : (4 * n_threads + n_blocks - 1) / n_blocks;
  const Index n_parts = std::max<Index>(1, std::min(wanted, n_panels));
  for_chunks(n_blocks * n_parts, 1, n_threads, [&](Index k, Index) {
    const Index block = k / n_parts, part = k % n_parts;
    task(block * kRows, std::min(n_rows, (block + 1) * kRows), part * n_panels / n_parts,
         (part + 1) * n_panels / n_parts);
  });
}

// c += a b for packed columns b; rows of a are packed block by block.
template <class T>
void multiply_packed(Index n_rows, Index n_columns, Index n_inner, Strided<const T> a, const T* factor, T sign,
                     const T* b, Index b_panel, Strided<T> c, Index diagonal, Sum sum, int n_threads) {
  const TileKernels<T>& k = kernels().tiles<T>();
  const Shape<T> shape;
  for_blocks<T>(n_rows, shape.panels(n_columns), n_threads, [&](Index first, Index last, Index from, Index to) {
    const Index column = from * shape.width, n = std::min(to * shape.width, n_columns) - column;
    if (n <= 0 || first >= column + n + diagonal) return;
    const Buffer<T> packed(shape.padded_rows(last - first) * n_inner);
    k.pack_rows({last - first, n_inner, &a(first, 0), a.row, a.column, factor, sign}, packed.data());
    k.multiply({last - first, n, n_inner, packed.data(), b + from * b_panel, b_panel, &c(first, column), c.row,
                diagonal + column - first, sum});
  });
}

template <class T>
void add_row_products(const DenseProduct<T>& p, int n_threads) {
  // Each row of c by itself, over chunks of its entries.
  constexpr Index chunk = 1024;
  const Index n_chunks = (p.n_columns + chunk - 1) / chunk;
  const Index work = p.n_columns * p.n_inner;
  for_chunks(p.n_rows * n_chunks, 1, work < 1 << 16 ? 1 : n_threads, [&](Index k, Index) {
    const Index i = k / n_chunks, begin = k % n_chunks * chunk, n = std::min(chunk, p.n_columns - begin);
    for (Index inner = 0; inner < p.n_inner; inner += kInner)
      kernels().tiles<T>().row_product({n, std::min(kInner, p.n_inner - inner), &p.b(inner, begin), p.b.column,
                                        p.b.row, &p.a(i, inner), p.a.column, &p.c(i, begin), p.c.column, p.sign,
                                        p.sum});
  });
}

}  // namespace

template <class T>
void add_product(const DenseProduct<T>& p, int n_threads) {
  if (p.n_rows == 0 || p.n_columns == 0 || p.n_inner == 0) return;
  const DenseProduct<T> swapped{p.n_columns, p.n_rows, p.n_inner, p.b.transposed(), p.a.transposed(), p.weight, p.sign,
                                p.c.transposed(), p.part, p.sum};
  if (p.weight == nullptr && p.part == Part::kAll) {
    if (p.n_rows < kFewest) return add_row_products(p, n_threads);
    if (p.n_columns < kFewest) return add_row_products(swapped, n_threads);
  }
  if (p.c.column != 1) return add_product(swapped, n_threads);
  const TileKernels<T>& k = kernels().tiles<T>();
  const Shape<T> shape;
  const Index step = kColumns / shape.width * shape.width, most = std::min(p.n_columns, step);
  const Buffer<T> packed(shape.panels(most) * shape.width * std::min(kInner, p.n_inner));
  for (Index column = 0; column < p.n_columns; column += step) {
    const Index n_columns = std::min(step, p.n_columns - column);
    for (Index inner = 0; inner < p.n_inner; inner += kInner) {
      const Index n_inner = std::min(kInner, p.n_inner - inner), b_panel = n_inner * shape.width;
      // Captures must not have types of this file alone, which GCC warns of where files are built as one.
      const auto pack = [&, width = shape.width, out = packed.data()](Index begin, Index end) {
        const Index first = begin * width, n = std::min(end * width, n_columns) - first;
        k.pack_columns({n, n_inner, &p.b(inner, column + first), p.b.column, p.b.row, nullptr, T(1)},
                       out + begin * b_panel);
      };
      for_chunks(shape.panels(n_columns), 8, n_threads, pack);
      multiply_packed<T>(p.n_rows, n_columns, n_inner, p.a.from(0, inner),
                         p.weight == nullptr ? nullptr : p.weight + inner, p.sign, packed.data(), b_panel,
                         p.c.from(0, column), p.part == Part::kUpper ? column : p.n_rows, p.sum, n_threads);
    }
  }
}

namespace {

// −L of the diagonal block, in panels of rows as long as their part of the triangle.
template <class T>
void pack_triangle(Index n, Strided<const T> l, T* out) {
  const Shape<T> shape;
  for (Index first = 0; first < n; first += shape.height) {
    const Index n_rows = std::min(shape.height, n - first), n_inner = first + n_rows;
    kernels().tiles<T>().pack_rows({n_rows, n_inner, &l(first, 0), l.row, l.column, nullptr, T(-1)}, out);
    out += n_inner * shape.height;
  }
}

// x (n, m) ← L⁻¹x for one block, panel by panel; what is found stays packed, one panel after another.
template <class T>
void solve_block(Index n, Index m, Strided<const T> l, Strided<T> x, T* packed, int n_threads) {
  const TileKernels<T>& k = kernels().tiles<T>();
  const Shape<T> shape;
  const Buffer<T> triangle(shape.padded_rows(n) * (n + shape.height));
  pack_triangle(n, l, triangle.data());
  const Index panel = n * shape.width;
  for_chunks(shape.panels(m), 4, n_threads, [&](Index begin, Index end) {
    for (Index p = begin; p < end; ++p) {
      const Index column = p * shape.width, width = std::min(shape.width, m - column);
      T* own = packed + p * panel;
      k.pack_columns({width, n, &x(0, column), x.column, x.row, nullptr, T(1)}, own);
      k.solve(n, triangle.data(), own);
      if (x.column == 1) {
        for (Index i = 0; i < n; ++i) std::copy_n(own + i * shape.width, width, &x(i, column));
      } else {
        for (Index q = 0; q < width; ++q)
          for (Index i = 0; i < n; ++i) x(i, column + q) = own[i * shape.width + q];
      }
    }
  });
}

// Panels of rows: their diagonal block first, then the rest of them, then what they subtract from the rows below.
template <class T>
Index factorise_in_blocks(Index n, T* a, Index row, Index block, int n_threads) {
  const Shape<T> shape;
  const Buffer<T> packed(shape.panels(n) * shape.width * std::min(n, block));
  for (Index first = 0; first < n; first += block) {
    const Index n_own = std::min(block, n - first), next = first + n_own, n_rest = n - next;
    T* diagonal = a + first * row + first;
    const Index rank = block > kSmallBlock ? factorise_in_blocks(n_own, diagonal, row, kSmallBlock, 1)
                                           : kernels().tiles<T>().factorise(n_own, diagonal, row);
    if (rank < n_own) return first + rank;
    if (n_rest == 0) break;
    const Strided<T> right{diagonal + n_own, row, 1};
    solve_block<T>(n_own, n_rest, Strided<const T>{diagonal, 1, row}, right, packed.data(), n_threads);
    multiply_packed<T>(n_rest, n_rest, n_own, Strided<const T>{right.data, 1, row}, nullptr, T(-1), packed.data(),
                       n_own * shape.width, Strided<T>{a + next * row + next, row, 1}, 0, Sum::kGoesOn, n_threads);
  }
  return n;
}

}  // namespace

template <class T>
Index factorise(Index n, T* a, Index row, int n_threads) {
  const Index rank = factorise_in_blocks(n, a, row, n > 2 * kInner ? kInner : 2 * kSmallBlock, n_threads);
  for (Index i = 0; i < n; ++i) std::fill_n(a + i * row, i, T(0));
  return rank;
}

template <class T>
void solve_lower(Index n, Index m, const Strided<const T>& l, const Strided<T>& x, int n_threads) {
  if (m == 0) return;
  const Shape<T> shape;
  const Index block = m < kFewest ? kSmallBlock : kInner;  // packing the rest would cost as much as its product
  const Buffer<T> packed(shape.panels(m) * shape.width * std::min(n, block));
  for (Index first = 0; first < n; first += block) {
    const Index n_own = std::min(block, n - first), next = first + n_own;
    solve_block<T>(n_own, m, l.from(first, first), x.from(first, 0), packed.data(), n_threads);
    if (next == n) break;
    if (m >= kFewest && x.column == 1) {
      multiply_packed<T>(n - next, m, n_own, l.from(next, first), nullptr, T(-1), packed.data(), n_own * shape.width,
                         x.from(next, 0), n - next, Sum::kGoesOn, n_threads);
    } else {
      const Strided<const T> found{x.data + first * x.row, x.row, x.column};
      add_product<T>({n - next, m, n_own, l.from(next, first), found, nullptr, T(-1), x.from(next, 0), Part::kAll,
                      Sum::kGoesOn},
                     n_threads);
    }
  }
}

template <class T>
void invert_factored(Index n, T* factor, T* lower, Index row, int n_threads) {
  // Blocks of columns of R⁻ᵀ, then of A⁻¹ = R⁻¹R⁻ᵀ, as far as they are not zero: each by one thread.
  for_chunks(n, kRows, n_threads, [&](Index begin, Index end) {
    for (Index i = begin; i < n; ++i) std::fill(lower + i * row + begin, lower + i * row + end, T(0));
    for (Index i = begin; i < end; ++i) lower[i * row + i] = T(1);
    solve_lower<T>(n - begin, end - begin, {factor + begin * row + begin, 1, row}, {lower + begin * row + begin, row, 1},
                   1);
  });
  for_chunks(n, kRows, n_threads, [&](Index begin, Index end) {
    for (Index i = 0; i < end; ++i) std::fill(factor + i * row + begin, factor + i * row + end, T(0));
    add_product<T>({end, end - begin, n - begin, {lower + begin * row, 1, row}, {lower + begin * row + begin, row, 1},
                    nullptr, T(1), {factor + begin, row, 1}, Part::kAll, Sum::kIsAdded},
                   1);
  });
}

#define PYDIRECT_DENSE(T)                                                                            \
  template void add_product(const DenseProduct<T>&, int);                                           \
  template Index factorise(Index, T*, Index, int);                                                  \
  template void invert_factored(Index, T*, T*, Index, int);                                         \
  template void solve_lower(Index, Index, const Strided<const T>&, const Strided<T>&, int);
PYDIRECT_DENSE(float)
PYDIRECT_DENSE(double)
#undef PYDIRECT_DENSE

}  // namespace pydirect
