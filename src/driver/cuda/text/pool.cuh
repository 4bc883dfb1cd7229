// pool.cuh: the largest of windows of images [N, H, W, C], where it lies, and
// its gradient. A thread has V channels of a pixel, which lie side by side.
//
// P: sizes of the image (H, W), of results (OH, OW), of windows (KH, KW), their
// strides (SH, SW), padding (PH, PW) and dilation (DH, DW); elements between
// neighbours of x (XN, XH, XW, XC), y (YN, ..) and places (AN, ..).
template <int V, class T>
FN void
move_pixel(T *to, const T *from, bool whole)
{
    if (V > 1 && whole) {
#pragma unroll
        for (int i = 0; i < (int)(V * sizeof(T) / 16); i++)
            ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    } else {
#pragma unroll
        for (int v = 0; v < V; v++)
            to[v] = from[v];
    }
}

// Where a window begins in the image.
template <class I>
FN I
first_inside(I begin, I step)
{
    return begin < 0 ? begin + (step - 1 - begin) / step * step : begin;
}

// at null: nobody asks for places. Dilated windows may have none: -inf.
template <class T, int V, class P, class I>
FN void
largest(T *y, s64 *at, const T *x, I n, I oh, I ow, I c)
{
    typedef decltype(get(T())) R;
    const I top = oh * P::SH - P::PH, left = ow * P::SW - P::PW;
    const I begin = first_inside<I>(top, P::DH) * P::W +
                    first_inside<I>(left, P::DW);
    const bool whole = aligned(x);
    R best[V];
    I place[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        best[v] = -infinity();
        place[v] = begin;
    }
    x += n * P::XN + c * P::XC;
#pragma unroll (P::KH * P::KW <= 16 ? P::KH : 1)
    for (I i = 0; i < P::KH; i++) {
        const I h = top + i * P::DH;
#pragma unroll (P::KH * P::KW <= 16 ? P::KW : 1)
        for (I j = 0; j < P::KW; j++) {
            const I w = left + j * P::DW;
            __align__(16) T from[V];
            if (h < 0 || h >= P::H || w < 0 || w >= P::W)
                continue;
            move_pixel<V>(from, x + h * P::XH + w * P::XW, whole);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const R next = get(from[v]);
                const bool more = next > best[v] || next != next;
                best[v] = more ? next : best[v];
                place[v] = more ? h * P::W + w : place[v];
            }
        }
    }
    __align__(16) T found[V];
    __align__(16) s64 places[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        put(&found[v], best[v]);
        places[v] = place[v];
    }
    move_pixel<V>(y + n * P::YN + oh * P::YH + ow * P::YW + c * P::YC, found,
                aligned(y));
    if (at)
        move_pixel<V>(at + n * P::AN + oh * P::AH + ow * P::AW + c * P::AC,
                    places, aligned(at));
}

// Of x, by the places that windows around a pixel have found, each of them in
// its window; in order, so that each run adds up the same.
template <class T, int V, class P, class I>
FN void
largest_gradient(T *x, const T *y, const s64 *at, I n, I h, I w, I c)
{
    typedef decltype(get(T())) R;
    const I top = h + P::PH - (P::KH - 1) * P::DH;
    const I left = w + P::PW - (P::KW - 1) * P::DW;
    const I from_h = top > 0 ? (top + P::SH - 1) / P::SH : 0;
    const I from_w = left > 0 ? (left + P::SW - 1) / P::SW : 0;
    const I to_h = (h + P::PH) / P::SH, to_w = (w + P::PW) / P::SW;
    const bool whole = aligned(y), whole_at = aligned(at);
    const s64 place = h * P::W + w;
    R sums[V];
#pragma unroll
    for (int v = 0; v < V; v++)
        sums[v] = 0;
    y += n * P::YN + c * P::YC;
    at += n * P::AN + c * P::AC;
    for (I i = from_h; i <= to_h && i < P::OH; i++)
        for (I j = from_w; j <= to_w && j < P::OW; j++) {
            __align__(16) s64 found[V];
            __align__(16) T grad[V];
            move_pixel<V>(found, at + i * P::AH + j * P::AW, whole_at);
            move_pixel<V>(grad, y + i * P::YH + j * P::YW, whole);
#pragma unroll
            for (int v = 0; v < V; v++)
                sums[v] += found[v] == place ? get(grad[v]) : (R)0;
        }
    __align__(16) T out[V];
#pragma unroll
    for (int v = 0; v < V; v++)
        put(&out[v], sums[v]);
    move_pixel<V>(x + n * P::XN + h * P::XH + w * P::XW + c * P::XC, out,
                aligned(x));
}
