package parallel

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
)

func TestEachIsDoneOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 7, 1000} {
		done := make([]atomic.Int32, n)
		if err := Each(n, func(i int) error { done[i].Add(1); return nil }); err != nil {
			t.Error(err)
		}
		covered := make([]atomic.Int32, n)
		err := Stretches(n, 10, func(lo, hi int) error {
			for i := lo; i < hi; i++ {
				covered[i].Add(1)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for i := range n {
			if done[i].Load() != 1 || covered[i].Load() != 1 {
				t.Errorf("%d of %d: done %d times, in %d stretches", i, n, done[i].Load(), covered[i].Load())
			}
		}
	}
}

func TestAnErrorEndsIt(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	var after atomic.Int32
	err := Each(1_000_000, func(i int) error {
		if i == 10 {
			return stop
		}
		after.Add(1)
		return nil
	})
	if err != stop || after.Load() == 999_999 {
		t.Errorf("%v, after %d calls", err, after.Load())
	}
}

func TestBeside(t *testing.T) {
	t.Parallel()
	var b Beside
	b.Wait()
	var order []int
	for i := range 3 {
		b.Go(func() { order = append(order, i) })
	}
	b.Wait()
	if !slices.Equal(order, []int{0, 1, 2}) {
		t.Errorf("the work was done in the order %v", order)
	}
	b.Go(func() { panic("broken") })
	b.Go(func() { order = nil })
	func() {
		defer func() {
			if r := recover(); r != "broken" || order == nil {
				t.Errorf("after a panic: %v, %v", r, order)
			}
		}()
		b.Wait()
		t.Error("the panic is lost")
	}()
}
