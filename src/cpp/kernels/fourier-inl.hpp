// Random Fourier features: phases by a small product, then sine and cosine together, written where they stay.

// R rows at once: a pack of frequencies is loaded once for all of them. The phase is accumulated input by input.
template <Index R, class T>
PYDIRECT_INLINE void fourier_rows(const FourierBlock<T>& p, Index i) {
  using P = Pack<T>;
  const double* x = p.x + i * p.x_stride;
  for (Index f = 0; f < p.n_used; f += P::lanes) {
    P t[R];
    PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) t[r] = broadcast(T(0));
    const P amplitude = load(p.amplitudes + f);
    const T* w = p.frequencies + f;
    for (Index k = 0; k < p.n_inputs; ++k) {
      const P wk = load(w + k * p.padded);
      PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) t[r] = t[r] + broadcast(T(x[r * p.x_stride + k])) * wk;
    }
    PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
      P s, c;
      sincos_turns(t[r], s, c);
      T* cosines = p.out + (i + r) * p.out_stride + f;
      T* sines = cosines + p.n_used;
      if (f + P::lanes <= p.n_used) {
        store(cosines, amplitude * c);
        store(sines, amplitude * s);
      } else {
        T buffer[2 * P::lanes];
        store(buffer, amplitude * c);
        store(buffer + P::lanes, amplitude * s);
        for (Index l = 0; l < p.n_used - f; ++l) {
          cosines[l] = buffer[l];
          sines[l] = buffer[P::lanes + l];
        }
      }
    }
  }
}

template <class T>
void fourier(const FourierBlock<T>& p) {
  constexpr Index R = 4;
  Index i = 0;
  for (; i + R <= p.n_rows; i += R) fourier_rows<R>(p, i);
  for (; i < p.n_rows; ++i) fourier_rows<1>(p, i);
}

constexpr void fill(FourierKernels& k) {
  k.of_floats = fourier<float>;
  k.of_doubles = fourier<double>;
}
