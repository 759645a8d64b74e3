"""PyTorch's special functions in Weft's ops."""

from translated.elementwise import elementwise
from translated.program import TABLE, Value, need, scalar

for name in "erfcx airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0".split():
    elementwise(f"special.{name}", name, 1)
for name, weft in {"special.modified_bessel_i0": "i0", "special.modified_bessel_i1": "i1"}.items():
    elementwise(name, weft, 1)
for name, weft in {"special.zeta": "zeta", "igamma": "igamma", "igammac": "igammac"}.items():
    elementwise(name, weft, 2)
for p in (1, 3, 5):
    TABLE[f"mvlgamma|mvlgamma_p_{p}"] = lambda w, x, p: w("mvlgamma", x, p=p)


def polynomial(name):
    def translate(w, x, n):
        need(isinstance(x, Value), "a number for x")
        return w(name, x, scalar(n))
    TABLE[f"special.{name}"] = translate


for kind in "tuvw":
    polynomial(f"chebyshev_polynomial_{kind}")
    polynomial(f"shifted_chebyshev_polynomial_{kind}")
for name in "hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p".split():
    polynomial(name)
