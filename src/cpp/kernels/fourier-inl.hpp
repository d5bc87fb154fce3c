// Random Fourier features: phases by a small product, then sine and cosine together, written where they stay.

// One pack of frequencies at a time, so that its column of the frequency table stays in the first-level cache;
// the phase of a row is accumulated input by input.
template <class T>
void fourier(const FourierBlock<T>& p) {
  using P = Pack<T>;
  const P amplitude = broadcast(p.amplitude);
  for (Index f = 0; f < p.padded; f += P::lanes) {
    const Index count = p.n_used - f < P::lanes ? p.n_used - f : Index(P::lanes);
    if (count <= 0) break;
    const T* w = p.frequencies + f;
    for (Index i = 0; i < p.n_rows; ++i) {
      const double* x = p.x + i * p.x_stride;
      P t = broadcast(T(0));
      for (Index k = 0; k < p.n_inputs; ++k) t = t + broadcast(T(x[k])) * load(w + k * p.padded);
      P s, c;
      sincos_turns(t, s, c);
      T* cosines = p.out + i * p.out_stride + f;
      T* sines = cosines + p.n_used;
      if (count == P::lanes) {
        store(cosines, amplitude * c);
        store(sines, amplitude * s);
      } else {
        T buffer[P::lanes];
        store(buffer, amplitude * c);
        for (Index l = 0; l < count; ++l) cosines[l] = buffer[l];
        store(buffer, amplitude * s);
        for (Index l = 0; l < count; ++l) sines[l] = buffer[l];
      }
    }
  }
}

template <class T>
void sincos_turns_array(Index n, const T* t, T* sine, T* cosine) {
  using P = Pack<T>;
  T in[P::lanes], s_out[P::lanes], c_out[P::lanes];
  for (Index k = 0; k < n; k += P::lanes) {
    const Index count = n - k < P::lanes ? n - k : Index(P::lanes);
    for (Index i = 0; i < P::lanes; ++i) in[i] = i < count ? t[k + i] : T(0);
    P s, c;
    sincos_turns(load(in), s, c);
    store(s_out, s);
    store(c_out, c);
    for (Index i = 0; i < count; ++i) {
      sine[k + i] = s_out[i];
      cosine[k + i] = c_out[i];
    }
  }
}
