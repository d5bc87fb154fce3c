#include "pydirect/activation_moments.hpp"

#include <algorithm>
#include <cmath>

namespace pydirect {
namespace {

const double kTwoPi = 6.283185307179586477;
struct Unit { double mu, s, inv, phi, cdf, ccdf, sr, hv; };

double normal_cdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
double normal_pdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(kTwoPi); }
double soft_relu(double x) { return x < 0 ? std::max(0.0, normal_pdf(x) + x * normal_cdf(x)) : x + std::max(0.0, normal_pdf(x) - x * normal_cdf(-x)); }

Unit unit(Activation f, double m, double S) {
  Unit u;
  u.s = std::sqrt(S);
  u.inv = S > 0 ? 1 / u.s : 0.0;
  u.mu = S > 0 ? std::min(std::max(m / u.s, -40.0), 40.0) : (m > 0 ? 40.0 : m < 0 ? -40.0 : 0.0);
  u.phi = normal_pdf(u.mu);
  u.cdf = normal_cdf(u.mu);
  u.ccdf = normal_cdf(-u.mu);
  u.sr = soft_relu(u.mu);
  u.hv = f == Activation::kHeaviside ? u.cdf * u.ccdf : S * std::max(0.0, u.cdf - u.sr * soft_relu(-u.mu));
  return u;
}

void nodes(Index n, double* x, double* w) {
  for (Index i = 0; i < n; ++i) {
    double z = std::cos(3.14159265358979323846 * (double(i) + 0.75) / (double(n) + 0.5)), d = 1;
    for (int it = 0; it < 50; ++it) {
      double p0 = 1, p1 = z;
      for (Index k = 2; k <= n; ++k) {
        const double p2 = ((2.0 * double(k) - 1) * z * p1 - (double(k) - 1) * p0) / double(k);
        p0 = p1;
        p1 = p2;
      }
      d = double(n) * (z * p1 - p0) / (z * z - 1);
      z -= p1 / d;
    }
    x[i] = z;
    w[i] = 2 / ((1 - z * z) * d * d);
  }
}

// T and R of the spec, signed r.
void integrals(const Unit& j, const Unit& l, double r_signed, double& T, double& R) {
  static const struct Rule { double x[48], w[48]; Rule() { nodes(48, x, w); } } rule;
  const double sign = r_signed < 0 ? -1.0 : 1.0, r = std::min(std::abs(r_signed), 1.0);
  const double a = j.mu, b = sign * l.mu;
  T = R = 0;
  if (r <= 0.99) {
    const double tau = r / (1 + std::sqrt((1 - r) * (1 + r)));
    for (int k = 0; k < 48; ++k) {
      const double t = 0.5 * tau * (rule.x[k] + 1), p = 1 + t * t, c = (1 - t * t) / p, u = 2 * t / p;
      const double e = rule.w[k] / p * std::exp(-(0.5 * (a * a + b * b) - u * a * b) / (c * c));
      T += e;
      R += (r - u) * e;
    }
    T *= tau / kTwoPi;
    R *= tau / kTwoPi;
  } else {
    const double tau = std::sqrt(std::max((1 - r) / (1 + r), 1e-200)), lo = std::min(a, b), hi = std::max(a, b);
    for (int k = 0; k < 48; ++k) {
      const double t = 0.5 * tau * (rule.x[k] + 1), p = 1 + t * t, u = (1 - t * t) / p;
      const double e = rule.w[k] / p * std::exp(-(a - b) * (a - b) * p * p / (8 * t * t) - 0.5 * a * b * p);
      T += e;
      R += (u - r) * e;
    }
    const double both = normal_cdf(lo) * normal_cdf(-hi);
    T = both - T * tau / kTwoPi;
    R = R * tau / kTwoPi + r * both - soft_relu(lo) * soft_relu(-hi);
  }
  T *= sign;
}

struct Paper { double factor, beta, gamma, d_factor, d_beta, d_gamma; };  // residual = factor exp(-beta q2 + gamma b)/(2 pi)

Paper paper(Activation f, double r) {
  const double rb = std::sqrt((1 - r) * (1 + r)), r2 = r * r;
  double A = 0, term = 1;  // (asin r - r) / r^3
  if (std::abs(r) < 0.3) {
    for (int k = 1; k < 40; ++k) {
      term *= (2.0 * k - 1) / (2.0 * k);
      A += term / (2.0 * k + 1) * std::pow(r2, k - 1);
    }
  } else {
    A = (std::asin(r) / r - 1) / r2;
  }
  Paper p;
  if (f == Activation::kRelu) {
    const double G = r2 * A + rb / (1 + rb), dG = r * (1 / ((1 + rb) * (1 + rb)) - A);
    p.factor = r * G;
    p.beta = 1 / (2 * G * (1 + rb));
    p.gamma = r * A / G;
    p.d_factor = 1 / (1 + rb);
    p.d_beta = -p.beta * (dG / G - r / (rb * (1 + rb)));
    p.d_gamma = (1 / (rb * (1 + rb)) - 2 * A) / G - p.gamma * dG / G;
  } else {
    const double a = 1 + r2 * A, da = r * (1 / (rb * (1 + rb)) - A);
    p.factor = r * a;
    p.beta = 1 / (2 * a * rb);
    p.gamma = r / (a * rb * (1 + rb));
    p.d_factor = 1 / rb;
    p.d_beta = -p.beta * (da / a - r / (rb * rb));
    p.d_gamma = 1 / (a * rb * (1 + rb)) + p.gamma * (-da / a + r / (rb * rb) + r / (rb * (1 + rb)));
  }
  return p;
}

constexpr double kClip = 1 - 1e-6;

}  // namespace

void activation_moments(Activation f, Index d, const double* mean, const double* variance, double* hm, double* v,
                        double* hv) {
  for (Index j = 0; j < d; ++j) {
    const Unit u = unit(f, mean[j], variance[j]);
    hv[j] = u.hv;
    if (f == Activation::kHeaviside) {
      hm[j] = v[j] = u.cdf;
    } else {
      hm[j] = std::max(mean[j], 0.0) + u.s * soft_relu(-std::abs(u.mu));
      v[j] = u.hv + hm[j] * hm[j];
    }
  }
}

void activation_moments_adjoint(Activation f, Index d, const double* mean, const double* variance,
                                const double* hm_bar, const double* v_bar, const double* hv_bar, double* mean_bar,
                                double* variance_bar) {
  for (Index j = 0; j < d; ++j) {
    const Unit u = unit(f, mean[j], variance[j]);
    if (f == Activation::kHeaviside) {
      const double bar = (hm_bar[j] + v_bar[j] + hv_bar[j] * (u.ccdf - u.cdf)) * u.phi * u.inv;
      mean_bar[j] += bar;
      variance_bar[j] -= 0.5 * bar * u.mu * u.inv;
    } else {
      const double hm = std::max(mean[j], 0.0) + u.s * soft_relu(-std::abs(u.mu));
      mean_bar[j] += hm_bar[j] * u.cdf + 2 * hm * v_bar[j] + 2 * hv_bar[j] * hm * u.ccdf;
      variance_bar[j] += 0.5 * hm_bar[j] * u.phi * u.inv + v_bar[j] * u.cdf + hv_bar[j] * (u.cdf - u.sr * u.phi);
    }
  }
}

Index activation_scratch_size(Index d) { return 16 * (d + 16); }

void activation_covariance(Activation f, PairKernel kernel, Index d, const double* mean, const double* S, double* C,
                           double* residual, double*) {
  for (Index j = 0; j < d; ++j) {
    const Unit uj = unit(f, mean[j], S[j * d + j]);
    C[j * d + j] = uj.hv;
    for (Index l = j + 1; l < d; ++l) {
      const Unit ul = unit(f, mean[l], S[l * d + l]);
      double r = S[j * d + l] * uj.inv * ul.inv, T = 0, R = 0, c;
      if (kernel == PairKernel::kPaper) {
        r = std::min(std::max(r, -kClip), kClip);
        const Paper p = paper(f, r);
        const double e =
            p.factor / kTwoPi * std::exp(-p.beta * (uj.mu * uj.mu + ul.mu * ul.mu) + p.gamma * uj.mu * ul.mu);
        c = f == Activation::kHeaviside ? e : S[j * d + l] * (uj.cdf * ul.cdf + e);
      } else {
        integrals(uj, ul, r, T, R);
        c = f == Activation::kHeaviside ? T : S[j * d + l] * uj.cdf * ul.cdf + uj.s * ul.s * R;
      }
      if (residual != nullptr) residual[j * d + l] = T;
      C[j * d + l] = C[l * d + j] = c;
    }
  }
}

void activation_covariance_adjoint(Activation f, PairKernel kernel, Index d, const double* mean, const double* S,
                                   const double* residual, const double* C_bar, double* mean_bar, double* S_bar,
                                   double*) {
  for (Index j = 0; j < d; ++j) {
    const Unit uj = unit(f, mean[j], S[j * d + j]);
    const double zero = 0.0;
    activation_moments_adjoint(f, 1, mean + j, S + j * d + j, &zero, &zero, C_bar + j * d + j, mean_bar + j,
                               S_bar + j * d + j);
    for (Index l = j + 1; l < d; ++l) {
      const Unit ul = unit(f, mean[l], S[l * d + l]);
      const double bar = C_bar[j * d + l], T = residual[j * d + l];
      double r = S[j * d + l] * uj.inv * ul.inv;
      double D, mj, ml, sj, sl;
      if (kernel == PairKernel::kPaper) {
        const bool clipped = std::abs(r) > kClip;
        r = std::min(std::max(r, -kClip), kClip);
        const Paper p = paper(f, r);
        const double q2 = uj.mu * uj.mu + ul.mu * ul.mu, b = uj.mu * ul.mu;
        const double e = std::exp(-p.beta * q2 + p.gamma * b) / kTwoPi;
        double dr = clipped ? 0.0 : e * (p.d_factor + p.factor * (-p.d_beta * q2 + p.d_gamma * b));
        double dj = p.factor * e * (-2 * p.beta * uj.mu + p.gamma * ul.mu);
        double dl = p.factor * e * (-2 * p.beta * ul.mu + p.gamma * uj.mu);
        D = dr * uj.inv * ul.inv;
        if (f == Activation::kRelu) {
          const double s = S[j * d + l];
          D = uj.cdf * ul.cdf + p.factor * e + s * D;
          dr *= s;
          dj = s * (dj + uj.phi * ul.cdf);
          dl = s * (dl + ul.phi * uj.cdf);
        }
        mj = dj * uj.inv;
        ml = dl * ul.inv;
        sj = -0.5 * (r * dr + uj.mu * dj) * uj.inv * uj.inv;
        sl = -0.5 * (r * dr + ul.mu * dl) * ul.inv * ul.inv;
      } else {
        r = std::min(std::max(r, -1.0), 1.0);
        const double rb = std::sqrt(std::max((1 - r) * (1 + r), 2.2e-16));
        const double cj = (uj.mu - r * ul.mu) / rb, cl = (ul.mu - r * uj.mu) / rb;
        const double e = std::exp(-0.5 * (uj.mu * uj.mu + cl * cl)) / kTwoPi;
        if (f == Activation::kRelu) {
          D = uj.cdf * ul.cdf + T;
          const double pj = uj.phi * normal_cdf(cl), pl = ul.phi * normal_cdf(cj);
          mj = ul.s * (ul.mu * T + pl - ul.phi * uj.cdf + r * pj);
          ml = uj.s * (uj.mu * T + pj - uj.phi * ul.cdf + r * pl);
          sj = 0.5 * uj.phi * uj.inv * ul.s * (rb * soft_relu(cl) - ul.sr);
          sl = 0.5 * ul.phi * ul.inv * uj.s * (rb * soft_relu(cj) - uj.sr);
        } else {
          const double pj = uj.phi * (normal_cdf(cl) - ul.cdf), pl = ul.phi * (normal_cdf(cj) - uj.cdf);
          D = e / rb * uj.inv * ul.inv;
          mj = pj * uj.inv;
          ml = pl * ul.inv;
          sj = -0.5 * (uj.mu * pj + r * e / rb) * uj.inv * uj.inv;
          sl = -0.5 * (ul.mu * pl + r * e / rb) * ul.inv * ul.inv;
        }
      }
      mean_bar[j] += 2 * bar * mj;
      mean_bar[l] += 2 * bar * ml;
      S_bar[j * d + l] += bar * D;
      S_bar[l * d + j] += bar * D;
      S_bar[j * d + j] += 2 * bar * sj;
      S_bar[l * d + l] += 2 * bar * sl;
    }
  }
}

}  // namespace pydirect
