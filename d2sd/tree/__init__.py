"""Drafted blocks, boundary posteriors, token trees and the walk: plain Python numbers. Needs no torch."""
